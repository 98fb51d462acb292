// Replicas that average their gradients, on c10d's reducer.
#pragma once

#include <memory>

#include "accelerate/communicator.h"
#include "accelerate/ddp.h"
#include "accelerate/strategy.h"
#include "strategy/ddp/ddp_models.h"
#include "strategy/ddp/replica_watch.h"
#include "strategy/ddp/update_checks.h"

namespace accelerate {

// Throws UsageError for options that mean nothing.
void require_usable_ddp(const DdpOptions& options);

// A replica of the model on every rank. wrap() checks that all ranks hold the same parameters,
// copies those of rank 0 to all and returns a model whose backward pass averages gradients bucket
// by bucket while it still runs. A model that needs no gradients stays local.
class DdpStrategy final : public Strategy {
 public:
  DdpStrategy(std::shared_ptr<Communicator> communicator, const DdpOptions& options);
  std::string_view name() const override { return "ddp"; }

  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) override;
  // An optimizer that refuses to step by gradients of this rank alone.
  std::unique_ptr<OptimizerStrategy> prepare_optimizer(
      const OptimizerPreparation& preparation) override;
  // The checks of such an optimizer, for one whose groups hold something else than parameters.
  // note_parameters() is still to be called. Collective in the sense of prepare_optimizer().
  std::unique_ptr<UpdateChecks> make_update_checks();

  void before_backward(const BackwardCall& call) override;
  void before_zero_grad(const std::vector<at::Tensor>& parameters) override;

  void require_sound(const char* where) override;
  void at_end_of_pass(const char* where) override;
  void before_save(const char* where, bool with_gradients) override;
  bool shares_buffers() const override { return options_.broadcast_buffers; }

  void join_uneven_inputs(const std::function<void()>& body, const JoinOptions& options,
                          const std::vector<std::shared_ptr<ModelStrategy>>& models,
                          const std::vector<std::shared_ptr<ModelStrategy>>& others) override;

 private:
  std::vector<detail::JoinMember*> members_of(
      const std::vector<std::shared_ptr<DdpModel>>& models) const;

  std::shared_ptr<Communicator> communicator_;
  DdpOptions options_;
  std::shared_ptr<DdpModels> models_ = std::make_shared<DdpModels>();
  ReplicaWatch replicas_;
};

}  // namespace accelerate
