// One model whose gradients are sharded, and maybe its parameters: stages 2 and 3 of ZeroOptions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "accelerate/ddp.h"
#include "accelerate/strategy.h"
#include "residency/touch/group_gatherer.h"
#include "residency/touch/touched_units.h"
#include "strategy/ddp/exchanged_model.h"
#include "strategy/ddp/model_passes.h"
#include "strategy/zero/gradient_scatter.h"
#include "strategy/zero/shard_groups.h"
#include "strategy/zero/shard_plan.h"

namespace accelerate {

// Parameters that live in shards, and what brings them together; null where they are whole.
struct GatheredUnits {
  std::shared_ptr<residency::TouchedUnits> units{};
  std::shared_ptr<residency::GroupGatherer> gatherer{};
};

// Every rank has pieces of gradients, see GradientScatter, and whole parameters, equal on all of
// them, or those of units in shards.
class ScatteredModel final : public ModelStrategy, public ExchangedModel {
 public:
  // All ranks hold the same values already. `parameters` are those of the plan, at least one.
  // `units` are as PlannedModel has them. Not collective.
  ScatteredModel(std::shared_ptr<torch::nn::Module> module, std::vector<at::Tensor> parameters,
                 std::shared_ptr<const ShardPlan> plan, GatheredUnits units, ShardGroups groups,
                 const DdpOptions& options);

  // See GradientScatter. Before the first pass.
  void send_gradients_as(at::ScalarType type) { scatter_->send_as(type); }

  void before_backward(const at::Tensor& loss) override;
  void after_backward() override;
  void set_gradient_sync(GradientSync sync) override;
  void sync_next_backward() override { sync_next_ = true; }
  void release() override;
  at::Tensor master_of(const at::Tensor& tensor) const override;
  void masters_changed() override;
  ModelLayout layout() const override;
  std::unique_ptr<FullParameters::Held> hold_full(const FullParametersOptions& options) override;
  bool usable() const override { return scatter_ != nullptr && !in_backward_; }
  bool is_released() const { return scatter_ == nullptr; }

  const torch::nn::Module& module() const override { return *module_; }
  bool equalizes(const at::Tensor& parameter) const override;
  void require_synchronised(const std::vector<at::Tensor>& parameters) const override;
  int64_t reduced_passes() const override { return reduced_passes_; }
  bool is_replicated() const override { return averages(); }

  // Whether the next pass reaches no other model that exchanges gradients.
  void set_alone(bool is_alone) { is_alone_ = is_alone; }
  // Throws UsageError if gradients of a pass that bypassed Accelerator::backward() are there, and
  // were not meant to stay on this rank. `where` is what the user called.
  void require_no_local_pass(const char* where) const;
  // The gradients of `parameters`, which may belong to other models, are about to be dropped.
  void before_zero_grad(const std::vector<at::Tensor>& parameters);
  // Throws UsageError on all ranks alike if this model, number `index`, is not fit to be saved.
  // Collective.
  void require_fit_to_save(size_t index, const char* where);
  // Gradients are whole until end_save(). Collective.
  void make_gradients_whole();
  void end_save() {
    if (scatter_) scatter_->make_pieces();
  }
  // The .grad() of one of its parameters holds the elements that this rank keeps.
  bool has_piece(const at::Tensor& parameter) const;

 protected:
  void before_forward() override;

 private:
  bool averages() const { return gradient_sync() == GradientSync::kOn; }
  void require_usable(const char* where) const;
  static void refuse_recording(const char* where);
  // Of shards that several ranks keep.
  void require_same_copies(size_t index, const char* where) const;

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<const ShardPlan> plan_;
  std::shared_ptr<residency::TouchedUnits> units_;      // null: parameters are whole
  std::shared_ptr<residency::GroupGatherer> gatherer_;  // of these units
  ShardGroups groups_;
  DdpOptions options_;
  BufferBroadcast buffers_;
  FrozenParameters frozen_;
  LocalGradients local_;
  bool sync_next_ = false;
  bool is_alone_ = true;
  bool in_backward_ = false;  // stays where a pass threw
  bool reduces_ = false;      // the pass that runs
  int64_t reduced_passes_ = 0;
  std::unique_ptr<GradientScatter> scatter_;  // null once released; last: its hooks call the rest
};

}  // namespace accelerate
