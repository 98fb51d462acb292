// What a checkpoint is made of.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "accelerate/accumulation.h"
#include "accelerate/detail/followed_loader.h"
#include "accelerate/grad_scaler.h"
#include "accelerate/prepared_optimizer.h"
#include "accelerate/process_control.h"
#include "accelerate/schedulers.h"
#include "core/prepared_models.h"
#include "core/window_weights.h"

namespace accelerate {

// The objects of one training loop, as they are now.
struct TrainingState {
  std::shared_ptr<Strategy> strategy{};
  bool strategy_is_users = false;  // made by a factory of the program
  PreparedModels models{};
  std::vector<PreparedOptimizer> optimizers{};
  std::vector<Scheduler> schedulers{};
  std::vector<std::shared_ptr<detail::FollowedLoader>> loaders{};
  GradScaler* scaler = nullptr;  // null where losses are not scaled
  detail::AccumulationWindow* window = nullptr;
  WindowWeights* weights = nullptr;
  Trigger* trigger = nullptr;
  // To be called before anything is replaced that cannot be put back; where a load ends after that
  // with an error, training must not go on.
  std::function<void(const std::filesystem::path& directory)> begin_replacing{};
  // To be called when gradients, the window and the scale were replaced by loaded ones.
  std::function<void()> gradients_replaced{};
};

}  // namespace accelerate
