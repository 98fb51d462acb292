#include "accelerate/accelerator.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>

#include "accelerate/log.h"
#include "base/bar_screen.h"
#include "base/environment.h"
#include "base/word_list.h"
#include "comm/agreement.h"
#include "comm/groups/activity.h"
#include "comm/rendezvous/timeouts.h"
#include "core/accelerator_impl.h"
#include "core/process/gloo_threads.h"
#include "core/process/rank_process.h"
#include "core/process/requested_capabilities.h"
#include "core/process/step_aggregator.h"
#include "core/tracking/record_tracker.h"
#include "device/device_backend.h"
#include "strategy/strategy_factory.h"

namespace accelerate {
namespace {

int64_t accumulation_steps(const GradientAccumulationOptions& options) {
  if (options.steps) return *options.steps;
  constexpr const char* kName = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS";
  const auto value = environment_variable(kName);
  if (!value || value->empty()) return 1;
  int64_t steps = 0;
  const char* end = value->data() + value->size();
  const auto [rest, error] = std::from_chars(value->data(), end, steps);
  if (error == std::errc() && rest == end && steps >= 1) return steps;
  throw ConfigError({.what = "\"" + *value + "\" is not a number of micro-batches",
                     .where = std::string("environment variable ") + kName,
                     .hint = "set it to 1 or more"});
}

// Gives what was left to the environment or to a default the value that it has.
void complete_options(AcceleratorOptions& options) {
  options.mixed_precision = resolve_mixed_precision(options.mixed_precision, environment_variable);
  options.gradient_accumulation.steps = accumulation_steps(options.gradient_accumulation);
  options.process_group = comm::with_timeouts(options.process_group, environment_variable);
}

void require_usable_preemption(const PreemptionOptions& options) {
  const auto is_death_by = [&](int signal) { return options.exit_code == 128 + signal; };
  const bool in_range = options.exit_code >= 1 && options.exit_code <= 255;
  if (in_range && std::ranges::none_of(options.signals, is_death_by)) return;
  throw UsageError({.what = "the exit code " + std::to_string(options.exit_code) +
                            " does not distinguish a program that saved its state from others",
                    .where = "PreemptionOptions::exit_code",
                    .hint = "leave it out for " + std::to_string(kPreemptedExitCode)});
}

}  // namespace

Accelerator::Accelerator(AcceleratorOptions options)
    : impl_(std::make_unique<Impl>(), "Accelerator") {
  impl_->state = ProcessState::from_environment({.cpu = options.cpu, .device = options.device});
  impl_->stamped([&] {
    refuse_missing_capabilities(environment_variable, options.mixed_precision);
    impl_->configuration =
        TrainingConfiguration::read(environment_variable, impl_->state.world_size());
    if (impl_->configuration) impl_->configuration->apply(options, environment_variable);
    complete_options(options);
    impl_->options = options;
    set_up_rank_process(impl_->state);
    impl_->determinism = std::make_unique<Determinism>(options.deterministic, device());
    device::device_backend(device().type()).make_current(device());
    impl_->communicator = std::make_shared<Communicator>(impl_->state, options.process_group);
    impl_->determinism->set_ranks(impl_->communicator);
    report_failures_of_gloo(impl_->communicator);
    impl_->recorder = recorder_of_environment(static_cast<uint64_t>(impl_->state.rank()),
                                              static_cast<uint64_t>(impl_->state.world_size()),
                                              comm::events_of(*impl_->communicator));
    impl_->streams = std::make_shared<RankStreams>(impl_->state.rank(), device(),
                                                   options.separate_random_streams);
    impl_->passes->set_before_pass([streams = impl_->streams] { streams->separate(); });
    impl_->strategy = make_strategy(options.strategy, options.ddp, options.flat,
                                    {.ranks = impl_->communicator, .device = device()});
    impl_->precision = PrecisionPolicy(*options.mixed_precision, device(), options.precision);
    if (impl_->precision.needs_grad_scaler()) {
      impl_->updates = std::make_shared<ScaledUpdates>(options.grad_scaler, impl_->communicator);
      impl_->unfit = std::make_shared<UnfitGradients>();
    }
    impl_->optimizers = std::make_shared<PreparedOptimizers>(
        [updates = impl_->updates, checks = impl_->checks](const torch::optim::Optimizer& gone) {
          if (updates) updates->forget(gone);
          checks->own_steps().forget(gone);
        });
    impl_->checks->set_optimizers(impl_->optimizers);
    impl_->checks->set_ranks(impl_->communicator);
    impl_->window = std::make_shared<GradientWindow>(
        *options.gradient_accumulation.steps, options.gradient_accumulation.sync_with_dataloader,
        impl_->communicator, [impl = impl_.get()] { return impl->gradients(); },
        [impl = impl_.get()] { return impl->parameters_of_each(); });
    impl_->keeper = std::make_unique<StateKeeper>(impl_->state, impl_->communicator,
                                                  options.project, options.process_group);
    auto optimizer_host = std::make_shared<TrainingOptimizerHost>(
        impl_->state, impl_->strategy, impl_->window, impl_->updates, impl_->unfit, impl_->checks,
        comm::events_of(*impl_->communicator));
    impl_->take_configuration();
    optimizer_host->configure(impl_->clipping, impl_->schedule);
    impl_->optimizer_host = std::move(optimizer_host);
    if (impl_->compares_plain_ddp()) {
      impl_->epochs = std::make_shared<PassEpochs>(impl_->communicator);
    }
    // Loaders may outlive the accelerator, whose ranks then part.
    const std::weak_ptr<Strategy> weak_strategy = impl_->strategy;
    const std::weak_ptr<PassEpochs> weak_epochs = impl_->epochs;
    const std::weak_ptr<detail::OpenPasses> weak_passes = impl_->passes;
    impl_->passes->set_watch(
        {.before_batch =
             [checks = impl_->checks, weak_strategy,
              events = comm::events_of(*impl_->communicator)] {
               constexpr const char* kWhere = kDataSpan.data();  // a literal
               checks->before_batch(kWhere);
               if (const auto strategy = weak_strategy.lock()) strategy->require_sound(kWhere);
               return std::make_shared<EventSpan>(events, EventKind::kSpanBegin, kDataSpan);
             },
         .at_end =
             [checks = impl_->checks, weak_strategy, weak_epochs, weak_passes] {
               constexpr const char* kWhere = "the end of a pass over the data";
               checks->at_end_of_pass(kWhere);
               if (const auto strategy = weak_strategy.lock()) strategy->at_end_of_pass(kWhere);
               const auto epochs = weak_epochs.lock();
               const auto passes = weak_passes.lock();
               if (!epochs || !passes) return;
               if (const auto last = passes->current()) epochs->at_end(last->epoch);
             }});
    impl_->tracking = std::make_shared<RunTracking>(
        impl_->state, options.log_with, options.project,
        impl_->recorder ? std::make_shared<RecordTracker>(impl_->recorder->writer()) : nullptr);
    require_usable_preemption(options.preemption);
    if (!options.preemption.signals.empty()) {
      impl_->signals = std::make_unique<SignalWatch>(options.preemption.signals);
    }
  });
}

void Accelerator::Impl::take_configuration() {
  configured =
      std::make_shared<ConfiguredObjects>(configuration ? configuration->deepspeed() : nullptr,
                                          state.world_size(), options.data_loader.split_batches);
  if (!configuration) return;
  std::vector<comm::Fact> facts;
  for (const auto& [name, value] : configuration->facts()) facts.push_back({name, value});
  comm::require_same(*communicator, facts, "Accelerator");
  if (const auto asked = configuration->clipping()) {
    clipping = std::make_shared<ConfiguredClipping>(asked->max_norm, asked->is_auto, asked->place,
                                                    strategy);
  }
  if (!state.is_main_process() || configuration->without_effect().empty()) return;
  accelerate::log(LogLevel::kWarning, std::string("without effect in the configuration of ") +
                                          configuration->name() + ": " +
                                          joined(configuration->without_effect()));
}

// The batch of a loader, and an optimizer for a schedule, may be prepared after all the rest.
void Accelerator::Impl::settle_configuration() {
  if (!configuration || std::exchange(is_settled, true)) return;
  const int64_t steps = configuration->settle_batches(options.data_loader.split_batches);
  if (steps != window->steps()) {
    window->set_steps(steps);
    options.gradient_accumulation.steps = steps;
  }
  if (!configured->has_scheduler() || has_schedule) return;
  const auto& prepared = optimizers->live();
  if (prepared.size() != 1) {
    throw ConfigError({.what = "the configuration has a schedule, and " +
                               std::to_string(prepared.size()) + " optimizers were prepared",
                       .where = configured->scheduler_place(),
                       .hint = "prepare an accelerate::ConfiguredScheduler of the one that it is "
                               "for"});
  }
  torch::optim::Optimizer& moved = prepared.front().optimizer();
  PreparedSchedulerOptions how;
  how.pace = SchedulerPace::kPerOptimizerStep;
  schedule->scheduler.emplace(prepare_scheduler(configured->scheduler_of(moved), how));
  schedule->optimizer = &moved;
  has_schedule = true;
}

// A loop that ends early, or that goes through the library only for its data, makes no further call
// that could throw.
void Accelerator::Impl::take_a_last_look() const noexcept {
  if (!strategy || state.world_size() == 1 || std::uncaught_exceptions() > 0) return;
  try {
    strategy->require_sound("the end of the accelerator");
  } catch (const std::exception& error) {
    accelerate::log(LogLevel::kError, error.what());
  }
}

Accelerator::Impl::~Impl() {
  take_a_last_look();
  try {
    if (tracking) tracking->end();
    if (optimizers)
      optimizers->drop_expired();  // models give those of the rest their parameters back
    for (const auto& model : models) {
      if (model.strategy.use_count() == 1) model.strategy->release();
    }
    if (unfit) unfit->watch({});  // optimizers that outlive this have it too
  } catch (const std::exception& error) {
    accelerate::log(
        LogLevel::kWarning,
        std::string("a model could not be released with its accelerator: ") + error.what());
  }
}

Accelerator::~Accelerator() = default;
Accelerator::Accelerator(Accelerator&&) noexcept = default;
Accelerator& Accelerator::operator=(Accelerator&&) noexcept = default;

const AcceleratorOptions& Accelerator::options() const { return impl_->options; }
const ProcessState& Accelerator::state() const { return impl_->state; }
std::string Accelerator::strategy_name() const { return std::string(impl_->strategy->name()); }
Communicator& Accelerator::communicator() const { return *impl_->communicator; }

const PrecisionPolicy& Accelerator::precision() const { return impl_->precision; }
MixedPrecision Accelerator::mixed_precision() const { return impl_->precision.mixed_precision(); }
Autocast Accelerator::autocast() const { return impl_->precision.autocast(); }
Autocast Accelerator::autocast(const AutocastOptions& options) const {
  return impl_->precision.autocast(options);
}

std::optional<BatchInfo> Accelerator::current_batch() const { return impl_->passes->current(); }
void Accelerator::set_trigger() { impl_->trigger.set(); }
bool Accelerator::check_trigger() {
  return impl_->stamped([&] {
    const comm::Activity activity(*impl_->communicator, "check_trigger");
    return impl_->trigger.check(*impl_->communicator);
  });
}

void Accelerator::wait_for_everyone() const {
  impl_->stamped([&] {
    const comm::Activity activity(*impl_->communicator, "wait_for_everyone");
    impl_->communicator->barrier();
  });
}

void Accelerator::print_line(const std::string& text) { write_above_bars(stdout, text + "\n"); }

void Accelerator::free_memory() {
  impl_->optimizers->drop_expired();  // models give those of the rest their parameters back
  for (const auto& model : impl_->models) model.strategy->release();
  impl_->models.clear();
  impl_->optimizers->clear();
  if (impl_->updates) {
    impl_->updates->reset();
    impl_->unfit->forget_all();
    impl_->watch_passes();
  }
  impl_->window->reset();
  impl_->checks->reset();
  impl_->schedulers.clear();
  *impl_->schedule = {};
  impl_->has_schedule = false;
  impl_->is_settled = false;
  impl_->loaders.clear();
  impl_->keeper->free_memory();
  device::device_backend(device().type()).empty_cache();
}

}  // namespace accelerate
