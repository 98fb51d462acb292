// One model whose gradients are averaged over the ranks while a backward pass runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/ddp.h"
#include "accelerate/errors.h"
#include "accelerate/strategy.h"
#include "compat/reducer.h"
#include "strategy/ddp/exchanged_model.h"
#include "strategy/ddp/local_passes.h"
#include "strategy/ddp/trainable_parameters.h"
#include "strategy/ddp/uneven_join.h"

namespace accelerate {

class PowerSgdHook;

// What it does in a training step is in ddp_model.cpp, what it does inside of a join in
// ddp_join.cpp, and what of it a checkpoint keeps in exchange_memory.cpp.
class DdpModel final : public ModelStrategy,
                       public ExchangedModel,
                       public detail::JoinMember,
                       private ExchangeMemory {
 public:
  // Gives all ranks the parameters and buffers of rank 0. `parameters` are those of `module`, at
  // least one. Collective.
  DdpModel(std::shared_ptr<torch::nn::Module> module, TrainableParameters parameters,
           std::shared_ptr<Communicator> communicator, const DdpOptions& options);
  ~DdpModel() override;

  void before_backward(const at::Tensor& loss) override;
  void after_backward() override;
  void set_gradient_sync(GradientSync sync) override;
  void sync_next_backward() override { sync_next_ = true; }
  void release() override;
  bool usable() const override { return reducer_ != nullptr && !in_backward_; }
  ExchangeMemory* exchange_memory() override { return this; }

  bool is_released() const { return reducer_ == nullptr; }
  const torch::nn::Module& module() const override { return *module_; }
  // Whether there are gradients that did not go through Accelerator::backward(), but should have.
  bool holds_local_gradients() const;
  bool equalizes(const at::Tensor& parameter) const override {
    return identities_.contains(parameter.unsafeGetTensorImpl());
  }
  void require_synchronised(const std::vector<at::Tensor>& parameters) const override;
  // Throws UsageError if there are such gradients, unless they were meant to stay on this rank.
  // `where` is what the user called.
  void require_no_local_pass(const char* where) const;
  // See LocalPasses::drop_gradients().
  void before_zero_grad(const std::vector<at::Tensor>& parameters);
  // Whether all ranks should hold the same parameters at the moment. Between two averages of
  // LocalSGD, and in a join, the ranks are not at the same update.
  bool is_replicated() const override {
    return options_.check_replicas && usable() && averages() && join_ == nullptr;
  }
  // Backward passes so far that averaged the gradients over the ranks.
  int64_t reduced_passes() const override { return reduced_passes_; }
  // How many samples the next backward pass stands for.
  void set_batch_weight(int64_t samples) { batch_weight_ = samples; }

  void set_join(detail::UnevenJoin* join, size_t index) override {
    join_ = join;
    join_index_ = index;
  }
  detail::UnevenJoin* join() const override { return join_; }
  bool would_reduce() const override;
  bool must_delay() const override { return reducer_->awaits_first_pass(); }
  bool is_reached_by(const compat::GraphNodes& graph) const override;
  void require_all_reached_by(const compat::GraphNodes& graph) const override;
  int64_t batch_weight() const override { return batch_weight_; }
  void answer_buffers(int source) override;
  void answer_before_backward() override;
  void answer_reduction(bool delayed) override;
  void require_same_replica(size_t index, bool compares) const override;
  void copy_from(int source) override;

 protected:
  void before_forward() override;

 private:
  ExchangeState state() const override;
  std::string check(const ExchangeState& state) const override;
  void restore(const ExchangeState& state) override;

  void fix_gradient_order();
  bool averages() const { return gradient_sync() == GradientSync::kOn; }
  [[noreturn]] void refuse(ErrorInfo info) const;
  // Before anything of a pass was exchanged: ranks that wait for it in a join are told.
  [[noreturn]] void refuse_to_begin(const ErrorInfo& info) const;
  [[noreturn]] void refuse_unused(const std::string& names) const;
  void require_usable(const char* where) const;
  void require_same_trainable_set() const;
  void require_own_graph() const;
  detail::ReductionPlan plan_alone() const;
  void broadcast(const std::vector<at::Tensor>& tensors, int source) const;

  // The first few of those that `condition` holds for.
  template <class Condition>
  std::string names_where(Condition condition) const {
    constexpr size_t kMostNames = 8;
    std::string text;
    size_t count = 0;
    for (size_t i = 0; i < parameters_.tensors.size(); ++i) {
      if (!condition(i)) continue;
      if (++count <= kMostNames) text += (count > 1 ? ", " : "") + parameters_.names[i];
    }
    if (count > kMostNames) text += " and " + std::to_string(count - kMostNames) + " more";
    return text;
  }

  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<Communicator> communicator_;
  DdpOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  TrainableParameters parameters_;
  std::unordered_set<const void*> identities_;  // of these parameters
  std::vector<std::pair<std::string, at::Tensor>> frozen_;
  std::vector<at::Tensor> buffers_;
  std::shared_ptr<compat::GradientReducer> reducer_;  // null once released
  std::shared_ptr<c10d::Logger> logger_;
  std::unique_ptr<LocalPasses> local_passes_;  // null once released
  PowerSgdHook* hook_ = nullptr;  // of the reducer, if it keeps something from pass to pass
  bool sync_next_ = false;
  bool buffers_changed_ = false;
  bool in_backward_ = false;    // stays where a pass threw
  int64_t reduced_passes_ = 0;  // of all ranks together, answered ones too
  int64_t batch_weight_ = 1;
  detail::UnevenJoin* join_ = nullptr;  // while one runs
  size_t join_index_ = 0;
  // Of the pass that runs:
  bool reduces_ = false;
  bool postponed_ = false;
  bool first_static_pass_ = false;
  bool unreduced_before_ = false;  // gradients that bypassed the accelerator before it
};

}  // namespace accelerate
