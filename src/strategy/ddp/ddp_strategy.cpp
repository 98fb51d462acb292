#include "strategy/ddp/ddp_strategy.h"

#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "strategy/ddp/comm_hooks.h"
#include "strategy/ddp/ddp_model.h"
#include "strategy/ddp/replica_check.h"
#include "strategy/ddp/uneven_join.h"
#include "strategy/single.h"

namespace accelerate {

DdpStrategy::DdpStrategy(std::shared_ptr<Communicator> communicator, const DdpOptions& options)
    : communicator_(std::move(communicator)), options_(options) {
  require_usable(options.comm_hook);
  constexpr double kMostMegabytes = 1024.0 * 1024;
  if (!(options.bucket_cap_mb > 0 && options.bucket_cap_mb <= kMostMegabytes)) {
    throw UsageError({.what = "bucket_cap_mb must be positive and at most 1048576",
                      .where = "DdpOptions",
                      .hint = "leave it out for the default of 25"});
  }
}

std::shared_ptr<ModelStrategy> DdpStrategy::wrap(std::shared_ptr<torch::nn::Module> module) {
  require_same_model(*module, *communicator_);
  TrainableParameters parameters = trainable_parameters(*module);
  if (parameters.tensors.empty()) return std::make_shared<LocalModel>();
  return std::make_shared<DdpModel>(std::move(module), std::move(parameters), communicator_,
                                    options_);
}

void DdpStrategy::join_uneven_inputs(const std::function<void()>& body, const JoinOptions& options,
                                     const std::vector<std::shared_ptr<ModelStrategy>>& models,
                                     const std::vector<std::shared_ptr<ModelStrategy>>& others) {
  // A rank without data answers with plain sums, which do not meet what a hook sends.
  if (options_.comm_hook.hook != CommHook::kNo) {
    throw UsageError({.what = "gradients that a communication hook compresses cannot be joined",
                      .where = "join_uneven_inputs",
                      .hint = "leave ddp.comm_hook out, or give all ranks as many batches "
                              "(even_batches)"});
  }
  const auto members_of = [this](const std::vector<std::shared_ptr<ModelStrategy>>& strategies) {
    std::vector<detail::JoinMember*> members;
    for (const auto& strategy : strategies) {
      detail::JoinMember* member = strategy->join_member();
      if (member == nullptr) continue;
      if (member->join() != nullptr) {
        communicator_->guard("join_uneven_inputs", [&] {
          member->join()->refuse_for_all({.what = "one join_uneven_inputs inside another",
                                          .where = "join_uneven_inputs",
                                          .hint = "join once, around the whole loop"});
        });
      }
      members.push_back(member);
    }
    return members;
  };
  detail::UnevenJoin(communicator_, options, members_of(models), members_of(others)).run(body);
}

}  // namespace accelerate
