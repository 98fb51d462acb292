// Schedulers of torch::optim that were given to prepare(). Internal: users do not call it.
#pragma once

#include <memory>
#include <utility>

#include "accelerate/checkpoint.h"

namespace torch::optim {
class LRScheduler;
}

namespace accelerate::detail {

struct TorchScheduler {
  std::shared_ptr<torch::optim::LRScheduler> scheduler;
  // What a user's class saves besides the step count; empty if it saves nothing.
  CheckpointFunctions own_state{};
};

template <class Derived>
TorchScheduler torch_scheduler(std::shared_ptr<Derived> scheduler) {
  TorchScheduler result{.scheduler = scheduler};
  if constexpr (Checkpointable<Derived>) {
    if (scheduler) result.own_state = checkpoint_functions(std::move(scheduler));
  }
  return result;
}

}  // namespace accelerate::detail
