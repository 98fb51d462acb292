// Updates many parameters with few calls: parameters that can go together are collected and given
// to one kernel for lists of tensors. What cannot go this way is left to the optimizer itself.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "optim/optimizer_step.h"

namespace accelerate {

// Parameters of one group that one kernel call can take: same device, dtype and number of updates.
struct TensorBucket {
  static constexpr size_t kMostColumns = 3;

  c10::Device device;
  c10::ScalarType dtype;
  int64_t step;  // number of the update that is being made; the optimizers without count use 0, 1
  std::vector<at::Tensor> parameters{};
  std::vector<at::Tensor> gradients{};
  // State tensors, one list for each kind; lists that a family does not use stay empty.
  std::array<std::vector<at::Tensor>, kMostColumns> state{};
  // Where the optimizer counts the updates of each parameter; empty where it does not.
  std::vector<int64_t*> counters{};

  // As the fused kernels want it: the number of the update for each parameter. One tensor for all.
  std::vector<at::Tensor> step_tensors() const;
};

// The frame of a grouped update. A family of optimizers says which state a parameter has (creating
// it as torch does) and what to call for a bucket.
class GroupedStep : public OptimizerStep {
 public:
  explicit GroupedStep(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}
  at::Tensor step(LossClosure closure) final;
  void step_unless(const at::Tensor& found_inf) final;
  void ended(bool skipped) final;

 protected:
  // What one parameter brings to its bucket.
  struct Entry {
    int64_t step = 0;
    std::array<at::Tensor, TensorBucket::kMostColumns> state{};
    int64_t* counter = nullptr;  // gets `step` once the update is made
  };

  // Finds the state of `parameter` and makes it where it is missing, so that an update which throws
  // leaves it as if it had not begun. Nothing where the state does not go with the kernels (another
  // layout, device or dtype): the optimizer then updates the parameter itself.
  virtual std::optional<Entry> enter(const at::Tensor& parameter,
                                     const torch::optim::OptimizerOptions& options) = 0;
  // Makes the update of all parameters of the bucket.
  virtual void update(TensorBucket& bucket, const torch::optim::OptimizerOptions& options) = 0;
  // Whether update() can be part of a CUDA graph: it then takes what changes from step to step from
  // the device and leaves an action that writes it there before each replay.
  virtual bool recordable() const { return false; }
  // Where the optimizer counts the updates of `parameter`; null where it does not.
  virtual int64_t* counter_of(const at::Tensor& /*parameter*/) { return nullptr; }
  // What tells update() on the device whether to change anything, as the kernels take it.
  std::optional<at::Tensor> found_inf() const {
    return found_inf_.defined() ? std::optional(found_inf_) : std::nullopt;
  }
  // The update of these parameters was counted, and ended() may take that back.
  void counted_ahead(at::TensorList parameters) {
    counted_ahead_.insert(counted_ahead_.end(), parameters.begin(), parameters.end());
  }
  // Whether kernels for tensors of this kind are there.
  virtual bool has_kernel(const at::Tensor& parameter) = 0;

  template <class State>
  State* find_state(const at::Tensor& parameter) {
    auto& states = optimizer_.state();
    const auto found = states.find(parameter.unsafeGetTensorImpl());
    return found == states.end() ? nullptr : static_cast<State*>(found->second.get());
  }
  template <class State>
  State& add_state(const at::Tensor& parameter, State made) {
    auto state = std::make_unique<State>(std::move(made));
    State& added = *state;
    optimizer_.state()[parameter.unsafeGetTensorImpl()] = std::move(state);
    return added;
  }

 private:
  // The parameters that no kernel took.
  using Rest = std::vector<at::Tensor>;

  void step_together(at::TensorList parameters, const torch::optim::OptimizerOptions& options,
                     Rest& rest);
  void collect(at::TensorList parameters, const torch::optim::OptimizerOptions& options,
               Rest& rest);
  TensorBucket& bucket_of(const at::Tensor& parameter, const Entry& entry);
  void look_for_repeated_parameters();
  void check_groups_before_replays();
  void let_optimizer_update(const Rest& rest);

  torch::optim::Optimizer& optimizer_;
  std::vector<TensorBucket> buckets_;
  at::Tensor found_inf_;
  std::vector<at::Tensor> counted_ahead_;
  size_t parameters_known_ = 0;
  bool repeats_ = false;
};

// Remembers for each type of device whether an operator has a kernel there.
class KernelLookup {
 public:
  // `name` as in "aten::_fused_adam_".
  explicit KernelLookup(const char* name) : name_(name) {}
  bool has_kernel_for(const at::Tensor& tensor);

 private:
  const char* name_;
  std::vector<std::pair<c10::DeviceType, bool>> known_;
};

// Zeros in the layout of the parameter.
at::Tensor zeros_of(const at::Tensor& parameter);
// Whether `tensor` lies in memory as `parameter` does, element by element.
bool same_layout(const at::Tensor& tensor, const at::Tensor& parameter);

std::unique_ptr<OptimizerStep> make_adam_step(torch::optim::Optimizer& optimizer);
std::unique_ptr<OptimizerStep> make_adamw_step(torch::optim::Optimizer& optimizer);
std::unique_ptr<OptimizerStep> make_sgd_step(torch::optim::Optimizer& optimizer);
std::unique_ptr<OptimizerStep> make_adagrad_step(torch::optim::Optimizer& optimizer);
std::unique_ptr<OptimizerStep> make_rmsprop_step(torch::optim::Optimizer& optimizer);

}  // namespace accelerate
