// Optimizers and schedules that a configuration of DeepSpeed describes: what its sections
// "optimizer" and "scheduler" say is made when these stand-ins are prepared. Python's library calls
// them DummyOptim and DummyScheduler.
//
//   torch::optim::AdamW adamw(net->parameters(), 1e-3);
//   accelerate::ConfiguredOptimizer chosen(adamw);  // adamw, unless a configuration has another
//   accelerate::ConfiguredScheduler schedule(chosen, {.warmup_steps = 100});
//   auto [model, optimizer, scheduler] = accelerator.prepare(net, chosen, schedule);
//
// Handles: copies stand for the same object.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/schedulers.h"

namespace torch::optim {
class Optimizer;
}

namespace accelerate {

// What the configuration leaves to the program by "auto".
struct ConfiguredOptimizerOptions {
  double lr = 1e-3;
  double weight_decay = 0;
};

// Stands for the optimizer of the configuration: prepare() makes a PreparedOptimizer of it.
class ACCELERATE_EXPORT ConfiguredOptimizer {
 public:
  // Where there is no configuration, or it has no optimizer, prepare() throws UsageError.
  explicit ConfiguredOptimizer(std::vector<at::Tensor> parameters,
                               const ConfiguredOptimizerOptions& options = {});
  // Where there is none, prepare() takes `otherwise`, which must outlive the result. Where there is
  // one, it trains the parameters of `otherwise` in the groups that these are in now; a group keeps
  // the rate and the weight decay by which it differs from the defaults of `otherwise`, and these
  // defaults are what "auto" stands for.
  explicit ConfiguredOptimizer(torch::optim::Optimizer& otherwise);

 private:
  friend class ConfiguredObjects;
  friend class ConfiguredScheduler;
  struct ACCELERATE_HIDDEN Impl;
  std::shared_ptr<Impl> impl_;
};

struct ConfiguredSchedulerOptions {
  // What the configuration leaves to the program by "auto". `training_steps` counts the batches of
  // one process alone, as a loader does before it is prepared: each rank takes an equal share.
  std::optional<int64_t> warmup_steps{};
  std::optional<int64_t> training_steps{};
  // Makes the schedule where no configuration describes one.
  std::function<Scheduler(torch::optim::Optimizer&)> otherwise{};
};

// Stands for the schedule of the configuration: prepare() makes a PreparedScheduler of it, whose
// step() advances it by one where an update was made. A configuration whose schedule nothing stands
// for advances it by itself, with each update.
class ACCELERATE_EXPORT ConfiguredScheduler {
 public:
  // Of that optimizer, which must outlive the result. Where nothing describes a schedule and there
  // is no `otherwise`, prepare() throws UsageError.
  explicit ConfiguredScheduler(const ConfiguredOptimizer& optimizer,
                               ConfiguredSchedulerOptions options = {});
  explicit ConfiguredScheduler(torch::optim::Optimizer& optimizer,
                               ConfiguredSchedulerOptions options = {});

 private:
  friend class ConfiguredObjects;
  struct ACCELERATE_HIDDEN Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace accelerate
