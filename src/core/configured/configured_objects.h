// The optimizers and schedules of a configuration, as a program prepares them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/configured.h"
#include "config/sharding/deepspeed_run.h"

namespace accelerate {

// One for each accelerator. Not collective: all ranks have the same configuration.
class ConfiguredObjects {
 public:
  // `document` is null where there is no configuration of DeepSpeed; it outlives this.
  ConfiguredObjects(const config::DeepspeedDocument* document, int ranks, bool split_batches);

  bool has_optimizer() const;
  bool has_scheduler() const;
  // Who described the schedule.
  std::string scheduler_place() const { return document_->place_of("scheduler"); }

  // What `stands` stands for, the same each time. Throws UsageError where nothing describes it.
  std::shared_ptr<torch::optim::Optimizer> optimizer(const ConfiguredOptimizer& stands);
  // The schedule of the configuration, or what the program has otherwise.
  struct Chosen {
    Scheduler scheduler;
    bool is_configured = false;
  };
  Chosen scheduler(const ConfiguredScheduler& stands);
  // The schedule of the configuration for an optimizer for which the program passes none.
  Scheduler scheduler_of(torch::optim::Optimizer& optimizer);

  // Throws ConfigError if the configuration describes what the program brings itself.
  void refuse_own(const torch::optim::Optimizer& optimizer) const;
  void refuse_own_scheduler() const;

 private:
  Scheduler make_scheduler(torch::optim::Optimizer& optimizer,
                           const ConfiguredSchedulerOptions& options);

  const config::DeepspeedDocument* document_;
  int ranks_;
  bool split_batches_;
  // Made by the configuration.
  std::vector<std::weak_ptr<torch::optim::Optimizer>> made_;
};

}  // namespace accelerate
