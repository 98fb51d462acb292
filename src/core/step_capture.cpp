#include "accelerate/step_capture.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <list>
#include <utility>

#include "accelerate/accelerator.h"
#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "comm/communicator_impl.h"
#include "compat/cuda_plugin.h"
#include "compat/replay_actions.h"

namespace accelerate {
namespace {

// What makes two steps the same kind.
struct Kind {
  struct Input {
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
    at::ScalarType dtype;
    friend bool operator==(const Input&, const Input&) = default;
  };
  std::vector<Input> inputs;
  // Of the window of accumulation that the step ends, in micro-batches: losses are divided by it.
  // 0: it ends none.
  int64_t window = 1;
  friend bool operator==(const Kind&, const Kind&) = default;
};

Kind kind_of(const StepCapture::Tensors& inputs, int64_t window) {
  Kind kind{.inputs = {}, .window = window};
  for (const at::Tensor& input : inputs) {
    kind.inputs.push_back({.sizes = input.sizes().vec(),
                           .strides = input.strides().vec(),
                           .dtype = input.scalar_type()});
  }
  return kind;
}

// Parameters, each with its gradient.
using Gradients = std::vector<std::pair<at::Tensor, at::Tensor>>;

struct Recorded {
  Kind kind;
  int warm = 0;
  std::unique_ptr<compat::DeviceGraph> graph{};
  compat::ReplayActions actions{};
  StepCapture::Tensors inputs{};
  StepCapture::Tensors outputs{};
  Gradients gradients{};
};

// As many backward passes as libtorch's reducer needs to settle.
constexpr int kLeastWarmupOfRanks = 11;

bool exchanges_on_device(Communicator& communicator) {
  return communicator.impl().group()->getBackend(c10::kCUDA)->getBackendName() == "nccl";
}

}  // namespace

class StepCapture::Impl {
 public:
  Impl(Accelerator& accelerator, Step step, const CaptureOptions& options)
      : accelerator_(accelerator), step_(std::move(step)), options_(options) {
    if (options.warmup_steps < 1 || options.most_graphs < 1) {
      throw UsageError({.what = "capture needs at least one step to warm up and one graph",
                        .where = "CaptureOptions"});
    }
    if (!accelerator.device().is_cuda() || compat::cuda_plugin() == nullptr) {
      fall_back("there is no GPU");
    } else if (accelerator.num_processes() > 1) {
      if (!exchanges_on_device(accelerator.communicator())) {
        fall_back("the ranks exchange gradients through the host");
      }
      options_.warmup_steps = std::max(options_.warmup_steps, kLeastWarmupOfRanks);
    }
  }

  Tensors run(const Tensors& inputs) {
    if (accelerator_.gradient_accumulation_steps() == 1) return run_micro_batch(inputs, 1);
    const auto window = accelerator_.accumulate();
    ++in_window_;
    const bool ends = accelerator_.sync_gradients();
    return run_micro_batch(inputs, ends ? std::exchange(in_window_, 0) : 0);
  }

  size_t graphs() const {
    size_t count = 0;
    for (const Recorded& recorded : recorded_) count += recorded.graph ? 1 : 0;
    return count;
  }
  int64_t replays() const { return replays_; }
  const std::string& fallback_reason() const { return reason_; }
  void reset() { recorded_.clear(); }

 private:
  Tensors run_micro_batch(const Tensors& inputs, int64_t window) {
    const compat::KeptGradients kept;
    if (!reason_.empty()) return step_(inputs);
    accelerator_.finish_iteration();
    Recorded& recorded = find(kind_of(inputs, window));
    if (!recorded.graph) {
      if (recorded.warm < options_.warmup_steps) {
        ++recorded.warm;
        Tensors outputs;
        compat::cuda_plugin()->on_side_stream([&] { outputs = step_(inputs); });
        return outputs;
      }
      if (!record(recorded, inputs)) return step_(inputs);
    }
    put_gradients_back(recorded);
    for (size_t i = 0; i < inputs.size(); ++i) {
      recorded.inputs[i].copy_(inputs[i], /*non_blocking=*/true);
    }
    recorded.actions.run_before();
    recorded.graph->replay();
    ++replays_;
    recorded.actions.run_after();
    return recorded.outputs;
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
      if (recorded_.back().graph) compat::cuda_plugin()->synchronize();
      recorded_.pop_back();
    }
    return recorded_.front();
  }

  bool record(Recorded& recorded, const Tensors& inputs) {
    for (const at::Tensor& input : inputs) {
      recorded.inputs.push_back(at::empty_strided(input.sizes(), input.strides(),
                                                  input.options().device(accelerator_.device())));
    }
    // Nothing of earlier steps may wait for its turn inside of the graph.
    (void)accelerator_.optimizer_step_was_skipped();
    const Gradients before = gradients_now();
    if (accelerator_.gradient_accumulation_steps() == 1) recorded.actions.mark_gradients(before);
    auto graph = compat::cuda_plugin()->make_graph();
    try {
      const compat::ReplayActions::Scope scope(recorded.actions);
      graph->record([&] {
        recorded.outputs = step_(recorded.inputs);
        accelerator_.finish_iteration();
      });
    } catch (const Error& error) {
      abandon(before);
      fall_back(error.message());
      return false;
    } catch (const c10::Error& error) {
      abandon(before);
      fall_back(error.what_without_backtrace());
      return false;
    }
    recorded.gradients = gradients_now();
    recorded.graph = std::move(graph);
    return true;
  }

  Gradients gradients_now() const {
    Gradients gradients;
    for (const at::Tensor& parameter : accelerator_.trained_parameters()) {
      if (parameter.grad().defined()) gradients.emplace_back(parameter, parameter.grad());
    }
    return gradients;
  }

  // Nothing of what was recorded happens.
  void abandon(const Gradients& before) const {
    accelerator_.abandon_iteration();
    for (const auto& [parameter, gradient] : before) parameter.mutable_grad() = gradient;
  }

  // The graph adds to the gradients that it was recorded with. One that was let go of outside of
  // the step comes back as zeros, another one as its values.
  static void put_gradients_back(const Recorded& recorded) {
    const at::NoGradGuard no_grad;
    for (const auto& [parameter, gradient] : recorded.gradients) {
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
    recorded_.clear();
    log(LogLevel::kWarning, "steps are not recorded as CUDA graphs: " + reason_);
  }

  Accelerator& accelerator_;
  Step step_;
  CaptureOptions options_;
  std::list<Recorded> recorded_;
  std::string reason_;
  int64_t replays_ = 0;
  int64_t in_window_ = 0;  // micro-batches of the present window
};

StepCapture::StepCapture(Accelerator& accelerator, Step step, const CaptureOptions& options)
    : impl_(std::make_unique<Impl>(accelerator, std::move(step), options)) {}
StepCapture::~StepCapture() = default;
StepCapture::StepCapture(StepCapture&&) noexcept = default;
StepCapture& StepCapture::operator=(StepCapture&&) noexcept = default;

StepCapture::Tensors StepCapture::operator()(const Tensors& inputs) { return impl_->run(inputs); }
size_t StepCapture::graphs() const { return impl_->graphs(); }
int64_t StepCapture::replays() const { return impl_->replays(); }
const std::string& StepCapture::fallback_reason() const { return impl_->fallback_reason(); }
void StepCapture::reset() { impl_->reset(); }

}  // namespace accelerate
