#include "accelerate/step_capture.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <list>
#include <optional>
#include <utility>

#include "accelerate/accelerator.h"
#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "comm/groups/communicator_impl.h"
#include "core/accelerator_impl.h"
#include "device/device_backend.h"
#include "device/replay_actions.h"

namespace accelerate {
namespace {

// What makes two steps the same kind.
struct Kind {
  struct Input {
    bool defined = false;
    std::vector<int64_t> sizes{};
    std::vector<int64_t> strides{};
    at::ScalarType dtype = at::ScalarType::Undefined;
    friend bool operator==(const Input&, const Input&) = default;
  };
  std::vector<Input> inputs;
  std::string rest;  // what of the batch is no tensor
  // Of the window of accumulation that the step ends, in micro-batches: losses are divided by it.
  // 0: it ends none. kBegins: nor does it, but zero_grad() in it throws the last window's gradients
  // away, which later micro-batches must not do.
  static constexpr int64_t kBegins = -1;
  int64_t window = 1;
  friend bool operator==(const Kind&, const Kind&) = default;
};

Kind kind_of(const detail::CapturedValue& batch, int64_t window) {
  Kind kind{.inputs = {}, .rest = batch.kind, .window = window};
  for (const at::Tensor& input : batch.tensors) {
    if (!input.defined()) {
      kind.inputs.emplace_back();
      continue;
    }
    kind.inputs.push_back({.defined = true,
                           .sizes = input.sizes().vec(),
                           .strides = input.strides().vec(),
                           .dtype = input.scalar_type()});
  }
  return kind;
}

// Parameters, each with its gradient.
using Gradients = std::vector<std::pair<at::Tensor, at::Tensor>>;

// What a recording has made.
struct Recording {
  std::unique_ptr<device::DeviceGraph> graph{};
  device::ReplayActions actions{};
  StepCapture::Tensors inputs{};
  detail::CapturedValue outputs{};
  Gradients gradients{};
};

struct Recorded {
  Kind kind;
  int warm = 0;
  std::optional<Recording> recording{};
};

// Places on `device` that a graph reads its inputs from. Inputs whose elements share memory, as
// those that were expanded, become dense ones.
StepCapture::Tensors places_for(const StepCapture::Tensors& inputs, c10::Device device) {
  StepCapture::Tensors places;
  for (const at::Tensor& input : inputs) {
    places.push_back(input.defined() ? at::empty_like(input, input.options().device(device),
                                                      at::MemoryFormat::Preserve)
                                     : at::Tensor());
  }
  return places;
}

bool needs_gradient(const at::Tensor& input) { return input.defined() && input.requires_grad(); }

// As many backward passes as libtorch's reducer needs to settle.
constexpr int kLeastWarmupOfRanks = 11;

bool exchanges_on_device(Communicator& communicator, const device::DeviceBackend& backend) {
  const device::Collectives& ranks = comm::impl_of(communicator).collectives_of(backend.type());
  return backend.records_collectives(ranks.name());
}

}  // namespace

class StepCapture::Impl {
 public:
  Impl(Accelerator& accelerator, NestedStep step, const CaptureOptions& options)
      : accelerator_(accelerator),
        step_(std::move(step)),
        options_(options),
        backend_(device::device_backend(accelerator.device().type())),
        loads_(accelerator.impl_->loads) {
    if (options.warmup_steps < 1 || options.most_graphs < 1) {
      throw UsageError({.what = "capture needs at least one step to warm up and one graph",
                        .where = "CaptureOptions"});
    }
    if (std::string reason = backend_.why_no_graph(); !reason.empty()) {
      fall_back(std::move(reason));
    } else if (accelerator.num_processes() > 1) {
      if (!exchanges_on_device(accelerator.communicator(), backend_)) {
        fall_back("the ranks exchange gradients through the host");
      }
      options_.warmup_steps = std::max(options_.warmup_steps, kLeastWarmupOfRanks);
    }
  }

  detail::CapturedValue run(const detail::CapturedValue& batch) {
    // A replay calls no prepared object that would ask.
    accelerator_.impl_->stamped([&] { accelerator_.impl_->checks->before_call("captured step"); });
    if (accelerator_.gradient_accumulation_steps() == 1) return run_micro_batch(batch, 1);
    const auto window = accelerator_.accumulate();
    return run_micro_batch(batch, place_in_window());
  }

  size_t graphs() const {
    size_t count = 0;
    for (const Recorded& recorded : recorded_) count += recorded.recording ? 1 : 0;
    return count;
  }
  int64_t replays() const { return replays_; }
  const std::string& fallback_reason() const { return reason_; }
  void reset() { forget(); }

 private:
  int64_t place_in_window() const {
    GradientWindow& window = *accelerator_.impl_->window;
    if (window.sync_gradients()) return window.counter().begun();
    return window.counter().begun() == 1 && window.drops_at_beginning() ? Kind::kBegins : 0;
  }

  detail::CapturedValue run_micro_batch(const detail::CapturedValue& batch, int64_t window) {
    const device::KeptGradients kept;
    if (reason_.empty() && std::ranges::any_of(batch.tensors, needs_gradient)) {
      fall_back("an input needs a gradient, which would stay inside the graph");
      recorded_.clear();
    }
    if (!reason_.empty()) return step_(batch);
    accelerator_.finish_iteration();
    for (const auto& prepared : accelerator_.impl_->optimizers->live()) prepared.agree_groups();
    forget_after_a_load();
    const Kind kind = kind_of(batch, window);
    if (const auto& present = find(kind).recording; present && !present->actions.holds()) forget();
    Recorded& recorded = find(kind);
    if (!recorded.recording) {
      if (recorded.warm < options_.warmup_steps) {
        ++recorded.warm;
        detail::CapturedValue outputs;
        backend_.on_side_stream([&] { outputs = step_(batch); });
        return outputs;
      }
      recorded.recording = record(batch);
      if (!recorded.recording) {
        recorded_.clear();
        return step_(batch);
      }
    }
    return replay(*recorded.recording, batch.tensors);
  }

  detail::CapturedValue replay(const Recording& recording, const Tensors& inputs) {
    accelerator_.impl_->window->restore_gradients();
    put_gradients_back(recording);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].defined()) recording.inputs[i].copy_(inputs[i], /*non_blocking=*/true);
    }
    recording.actions.run_before();
    recording.graph->replay();
    ++replays_;
    recording.actions.run_after();
    return recording.outputs;
  }

  // Graphs of one optimizer have its state in common: what one cannot be replayed with, none can.
  void forget() {
    if (graphs() > 0) backend_.synchronize(accelerator_.device());  // their work may still run
    recorded_.clear();
  }

  // Optimizer state, buckets of gradients and more may lie elsewhere now.
  void forget_after_a_load() {
    const int64_t loads = accelerator_.impl_->loads;
    if (std::exchange(loads_, loads) != loads) forget();
  }

  // The latest first.
  Recorded& find(Kind kind) {
    for (auto it = recorded_.begin(); it != recorded_.end(); ++it) {
      if (!(it->kind == kind)) continue;
      recorded_.splice(recorded_.begin(), recorded_, it);
      return recorded_.front();
    }
    recorded_.push_front(Recorded{.kind = std::move(kind)});
    if (recorded_.size() > options_.most_graphs) {
      // Its work may still run.
      if (recorded_.back().recording) backend_.synchronize(accelerator_.device());
      recorded_.pop_back();
    }
    return recorded_.front();
  }

  // Nothing, and a reason to fall back, where the step cannot be recorded. Passes on what the step
  // throws for reasons of its own; a later call then tries again.
  std::optional<Recording> record(const detail::CapturedValue& batch) {
    Recording made{.inputs = places_for(batch.tensors, accelerator_.device())};
    // Nothing of earlier steps may wait for its turn inside of the graph.
    if (accelerator_.impl_->updates) accelerator_.impl_->updates->settle();
    const Gradients before = gradients_now();
    const WindowGradients held = accelerator_.impl_->window->held_gradients();
    // What is recorded has not happened: the replays do it, and note it.
    const auto put_window_back = [&] {
      accelerator_.impl_->window->held_gradients() = held;
      accelerator_.impl_->window->held_gradients().refresh();
    };
    const auto abandon = [&] {
      put_back(before);
      put_window_back();
    };
    if (accelerator_.gradient_accumulation_steps() == 1) made.actions.mark_gradients(before);
    made.graph = backend_.make_graph();
    try {
      const device::ReplayActions::Scope scope(made.actions);
      made.graph->record([&] {
        made.outputs = step_({.tensors = made.inputs, .kind = batch.kind, .whole = batch.whole});
        accelerator_.finish_iteration();
      });
    } catch (const Error& error) {
      abandon();
      fall_back(error.message());
      return std::nullopt;
    } catch (const c10::Error& error) {
      abandon();
      fall_back(error.what_without_backtrace());
      return std::nullopt;
    } catch (...) {
      abandon();
      throw;
    }
    made.gradients = gradients_now();
    put_window_back();
    return made;
  }

  Gradients gradients_now() const {
    Gradients gradients;
    for (const at::Tensor& parameter : accelerator_.trained_parameters()) {
      if (parameter.grad().defined()) gradients.emplace_back(parameter, parameter.grad());
    }
    return gradients;
  }

  // Nothing of what was recorded happens. Gradients that the recording has made hold no values.
  void put_back(const Gradients& before) const {
    accelerator_.abandon_iteration();
    for (const at::Tensor& parameter : accelerator_.trained_parameters()) {
      parameter.mutable_grad().reset();
    }
    for (const auto& [parameter, gradient] : before) parameter.mutable_grad() = gradient;
  }

  // The graph adds to the gradients that it was recorded with. One that was dropped outside of the
  // step comes back as zeros, another one as its values.
  static void put_gradients_back(const Recording& recording) {
    const at::NoGradGuard no_grad;
    for (const auto& [parameter, gradient] : recording.gradients) {
      at::Tensor& present = parameter.mutable_grad();
      if (present.is_same(gradient)) continue;
      if (present.defined()) {
        gradient.copy_(present);
      } else {
        gradient.zero_();
      }
      present = gradient;
    }
  }

  void fall_back(std::string reason) {
    reason_ = std::move(reason);
    log(LogLevel::kWarning, "steps are not recorded as graphs: " + reason_);
  }

  Accelerator& accelerator_;
  NestedStep step_;
  CaptureOptions options_;
  const device::DeviceBackend& backend_;
  std::list<Recorded> recorded_;
  std::string reason_;
  int64_t replays_ = 0;
  int64_t loads_ = 0;  // of the accelerator, when the oldest graph was recorded
};

void keep_for_replays(const at::Tensor& tensor) {
  if (auto* actions = device::ReplayActions::current()) actions->keep(tensor);
}

StepCapture::StepCapture(Accelerator& accelerator, Step step, const CaptureOptions& options)
    : StepCapture(accelerator,
                  NestedStep([step = std::move(step)](const detail::CapturedValue& batch) {
                    return detail::CapturedValue{.tensors = step(batch.tensors)};
                  }),
                  options) {}
StepCapture::StepCapture(Accelerator& accelerator, NestedStep step, const CaptureOptions& options)
    : impl_(std::make_unique<Impl>(accelerator, std::move(step), options), "StepCapture") {}
StepCapture::~StepCapture() = default;
StepCapture::StepCapture(StepCapture&&) noexcept = default;
StepCapture& StepCapture::operator=(StepCapture&&) noexcept = default;

StepCapture::Tensors StepCapture::operator()(const Tensors& inputs) {
  return impl_->run({.tensors = inputs}).tensors;
}
detail::CapturedValue StepCapture::run(const detail::CapturedValue& batch) {
  return impl_->run(batch);
}
size_t StepCapture::graphs() const { return impl_->graphs(); }
int64_t StepCapture::replays() const { return impl_->replays(); }
const std::string& StepCapture::fallback_reason() const { return impl_->fallback_reason(); }
void StepCapture::reset() { impl_->reset(); }

}  // namespace accelerate
