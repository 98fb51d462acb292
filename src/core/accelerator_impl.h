// What an accelerator holds. For the files of this room that hold the members of Accelerator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "accelerate/accelerator.h"
#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "accelerate/preemption.h"
#include "core/configured/configured_clipping.h"
#include "core/configured/configured_objects.h"
#include "core/configured/training_configuration.h"
#include "core/gradient_window.h"
#include "core/optimizer_host.h"
#include "core/ownerless_parameters.h"
#include "core/pass_epochs.h"
#include "core/prepared_models.h"
#include "core/prepared_optimizers.h"
#include "core/process/determinism.h"
#include "core/process/rank_streams.h"
#include "core/process/run_recorder.h"
#include "core/scaled_updates.h"
#include "core/state_keeper.h"
#include "core/stray_parameters.h"
#include "core/tracking/run_tracking.h"
#include "core/training_checks.h"
#include "core/unfit_gradients.h"

namespace accelerate {

// libtorch looks at the memory of each input of which it records the shape.
[[noreturn]] void refuse_shapes_of_shards(const char* where);

struct Accelerator::Impl {
  Impl() = default;
  // Releases the models that nobody else holds: their modules are ordinary again. Prepared models
  // that outlive the accelerator go on.
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::unique_ptr<Determinism> determinism;  // first: ends after all the rest
  AcceleratorOptions options;
  ProcessState state;
  std::shared_ptr<TrainingConfiguration> configuration;  // null where variables ask for none
  std::shared_ptr<ConfiguredObjects> configured;         // never null
  std::shared_ptr<ConfiguredClipping> clipping;          // null where nothing is clipped
  // Of a configuration whose schedule nothing stands for.
  std::shared_ptr<ScheduleOfUpdates> schedule = std::make_shared<ScheduleOfUpdates>();
  bool has_schedule = false;  // that of the configuration was prepared
  bool is_settled = false;    // see settle_configuration()
  std::shared_ptr<Communicator> communicator;
  std::shared_ptr<Strategy> strategy;  // prepared objects may outlive the accelerator
  PreparedModels models;
  std::vector<std::shared_ptr<detail::FollowedLoader>> loaders;  // some may be gone
  // Nothing for schedulers of torch of which nobody has a handle any more.
  std::vector<std::function<std::optional<Scheduler>()>> schedulers;
  std::shared_ptr<detail::OpenPasses> passes = std::make_shared<detail::OpenPasses>();
  std::shared_ptr<PassEpochs> epochs;  // null where nothing is compared
  int64_t compared_at = 0;  // updates of the first optimizer, when bits were compared last
  int64_t passes_since_compared = 0;     // at least as many as updates
  bool trained_apart = false;            // in a join or in LocalSgd: optimizer state may differ
  std::optional<int64_t> local_since;    // updates made when LocalSgd began, while it lasts
  std::shared_ptr<RankStreams> streams;  // each rank has its own from where its loop begins

  // What a profile looks at may be gone when it ends, and what is open may be none.
  std::shared_ptr<const bool> alive = std::make_shared<bool>(true);
  std::weak_ptr<const bool> shapes_recorded;  // alive while an open profile records shapes

  bool said_pace = false;  // how schedulers move
  bool said_rank_zero_reads = false;
  bool said_flat_inputs = false;
  std::string said_batch;  // how large batches are, as it was told last
  int64_t loads = 0;       // how often load_state() has replaced what is trained

  PrecisionPolicy precision;
  // Both null unless losses are scaled.
  std::shared_ptr<ScaledUpdates> updates;
  std::shared_ptr<UnfitGradients> unfit;
  std::shared_ptr<TrainingChecks> checks = std::make_shared<TrainingChecks>();
  std::shared_ptr<PreparedOptimizers> optimizers;
  OwnerlessParameters ownerless;
  StrayParameters strays;
  std::shared_ptr<GradientWindow> window;
  std::shared_ptr<OptimizerHost> optimizer_host;
  Trigger trigger;
  std::shared_ptr<RunTracking> tracking;  // ends with this, whoever else holds it
  std::unique_ptr<SignalWatch> signals;   // null where none are watched
  std::unique_ptr<RunRecorder> recorder;  // null where the run is not recorded
  std::unique_ptr<StateKeeper> keeper;    // last: finishes its save before the rest goes

  // What of the configuration follows from the objects that were prepared. Called when training, or
  // a checkpoint, begins: later calls do nothing.
  void settle_configuration();
  // What of it is known from the beginning; says once which of its keys have no effect.
  void take_configuration();
  // Logs what the next call would throw because of what was trained past the library, if any call
  // came.
  void take_a_last_look() const noexcept;
  PreparedScheduler prepare_scheduler(const Scheduler& scheduler,
                                      const PreparedSchedulerOptions& how);

  // What a checkpoint is made of at the moment.
  TrainingState training_state();
  // Throws UsageError if the gradients are not fit to be saved. Puts those back that a window
  // needs.
  void before_save(const SaveOptions& options);

  bool prepared(const std::shared_ptr<ModelStrategy>& strategy) const {
    return std::ranges::any_of(models,
                               [&](const auto& entry) { return entry.strategy == strategy; });
  }

  void require_complete_gradients(const char* where) const {
    if (window->sync_gradients()) return;
    throw UsageError({.what = "gradients that still accumulate cannot be unscaled",
                      .where = where,
                      .hint = "clip and unscale where sync_gradients() is true"});
  }

  // Prepares `optimizer` for an update by gradients that are not scaled.
  void unscale(const PreparedOptimizer& optimizer, const char* where) {
    unfit->require_none(optimizer.parameters(), where);
    updates->unscale(optimizer.optimizer());
    checks->own_steps().forget(optimizer.optimizer());
  }
  // The gradients that are unscaled and wait for their step: scaled ones must not be added to them.
  GradientMarks unscaled_gradients() const;
  // Says once that a flat model in half precision needs inputs in half precision.
  void say_flat_inputs(const torch::nn::Module& module);
  // Whether gradients are averaged by DDP as it comes, and ranks are compared.
  bool compares_plain_ddp() const;
  // The options of that, which may belong to another strategy.
  const DdpOptions& ddp_options() const;
  // Before a backward pass: compares the replicas if enough updates were made. Collective then.
  void compare_updated_replicas();
  // Before a backward pass. Throws UsageError if there is nothing whose gradients it could average,
  // and warns of parameters whose gradients it does not.
  void look_for_strays(const at::Tensor& loss);
  // After a backward pass: which gradients must wait for their step.
  void note_unfinished_gradients();

  // Called before gradients are clipped or measured, scaled or not.
  // Only for optimizers this accelerator prepared: the gradients of others may not be there yet.
  void unscale_gradients_of(at::TensorList parameters, const char* where) {
    checks->before_gradient_call(where);
    if (!updates) return;
    require_complete_gradients(where);
    bool found = false;
    for (const PreparedOptimizer& prepared : optimizers->live()) {
      if (!has_any_of(prepared.parameters(), parameters)) continue;
      found = true;
      unscale(prepared, where);
    }
    if (found) return;
    throw UsageError({.what = "scaled gradients of parameters that no prepared optimizer has",
                      .where = where,
                      .hint = "give the optimizer of these parameters to prepare()"});
  }

  // All parameters that losses may reach, each once.
  std::vector<at::Tensor> trained_parameters() const;
  // Models or optimizers have come or gone.
  void watch_passes() {
    // One of the user's own may give parameters other shapes for a pass, which hooks would not fit.
    const bool is_users =
        std::holds_alternative<std::shared_ptr<StrategyFactory>>(options.strategy);
    if (unfit && !is_users) unfit->watch(trained_parameters());
  }
  // Of each prepared model and each prepared optimizer.
  std::vector<std::vector<at::Tensor>> parameters_of_each() const;
  // Of all that losses may reach, each once.
  std::vector<at::Tensor> gradients() const;
  // What zero_grad() of prepared models does.
  detail::ZeroGrad zero_grad_of_models() const;

  // Runs `call` and stamps the errors that pass through with the rank.
  template <class Call>
  auto stamped(Call call) const {
    return detail::stamped(state, call);
  }
};

}  // namespace accelerate
