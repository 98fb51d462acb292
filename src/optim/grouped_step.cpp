#include "optim/grouped_step.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "accelerate/errors.h"
#include "device/replay_actions.h"
#include "optim/overflow_watch.h"

namespace accelerate {
namespace {

[[noreturn]] void refuse_recording() {
  throw UsageError({.what = "the update of this optimizer cannot be part of a CUDA graph",
                    .where = "step",
                    .hint = "use SGD, Adam or AdamW"});
}

bool kernels_take(c10::ScalarType type) {
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

// Dense memory: kernels on the CPU run through it from one end to the other without a look at the
// strides.
bool is_plain(const at::Tensor& parameter) {
  return parameter.layout() == c10::kStrided && kernels_take(parameter.scalar_type()) &&
         parameter.is_non_overlapping_and_dense();
}

// Whether the strides differ at most where there is nothing to stride over. Convolutions of 1 x 1
// have such gradients.
bool lies_alike(const at::Tensor& gradient, const at::Tensor& parameter) {
  if (gradient.scalar_type() != parameter.scalar_type() || gradient.sizes() != parameter.sizes()) {
    return false;
  }
  for (int64_t i = 0; i < parameter.dim(); ++i) {
    if (parameter.size(i) > 1 && gradient.stride(i) != parameter.stride(i)) return false;
  }
  return true;
}

// The gradient as the kernels take it: copied where it has another layout or dtype.
at::Tensor gradient_like(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (same_layout(gradient, parameter)) return gradient;
  if (lies_alike(gradient, parameter)) {
    return gradient.as_strided(parameter.sizes(), parameter.strides());
  }
  return at::empty_like(parameter, at::MemoryFormat::Preserve).copy_(gradient);
}

// Hides gradients from an optimizer while it lives.
class HiddenGradients {
 public:
  HiddenGradients() = default;
  ~HiddenGradients() {
    for (auto& [parameter, gradient] : hidden_) parameter.mutable_grad() = std::move(gradient);
  }
  HiddenGradients(const HiddenGradients&) = delete;
  HiddenGradients& operator=(const HiddenGradients&) = delete;

  void hide(const at::Tensor& parameter) {
    if (!parameter.grad().defined()) return;
    hidden_.emplace_back(parameter, std::exchange(parameter.mutable_grad(), at::Tensor()));
  }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> hidden_;
};

// Neither fused kernels nor all optimizers of libtorch count their writes: without this a backward
// pass through a graph of before an update would compute with what is there now.
void note_writes(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.is_inference()) parameter.unsafeGetTensorImpl()->bump_version();
  }
}

// A parameter that is listed twice is updated twice, one after the other.
std::vector<std::vector<at::Tensor>> rounds_of(const std::vector<at::Tensor>& parameters) {
  std::vector<std::vector<at::Tensor>> rounds;
  std::unordered_map<const void*, size_t> times_seen;
  for (const at::Tensor& parameter : parameters) {
    const size_t round = times_seen[parameter.unsafeGetTensorImpl()]++;
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(parameter);
  }
  return rounds;
}

}  // namespace

std::vector<at::Tensor> TensorBucket::step_tensors() const {
  const at::Tensor count =
      at::full({}, static_cast<double>(step), at::TensorOptions(at::kFloat).device(device));
  return {parameters.size(), count};
}

bool same_layout(const at::Tensor& tensor, const at::Tensor& parameter) {
  return tensor.defined() && tensor.layout() == c10::kStrided &&
         tensor.scalar_type() == parameter.scalar_type() && tensor.device() == parameter.device() &&
         tensor.sizes() == parameter.sizes() && tensor.strides() == parameter.strides();
}

at::Tensor zeros_of(const at::Tensor& parameter) {
  return at::zeros_like(parameter, at::MemoryFormat::Preserve);
}

bool KernelLookup::has_kernel_for(const at::Tensor& tensor) {
  const c10::DeviceType type = tensor.device().type();
  for (const auto& [known, has] : known_) {
    if (known == type) return has;
  }
  const auto op = c10::Dispatcher::singleton().findSchema({name_, ""});
  const bool has = op.has_value() &&
                   op->hasKernelForDispatchKey(c10::legacyExtractDispatchKey(tensor.key_set()));
  known_.emplace_back(type, has);
  return has;
}

at::Tensor GroupedStep::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const at::NoGradGuard no_grad;
  const bool recording = device::ReplayActions::current() != nullptr;
  if (recording && !recordable()) refuse_recording();
  if (recording) check_groups_before_replays();
  look_for_repeated_parameters();
  Rest rest;
  for (auto& group : optimizer_.param_groups()) {
    if (!repeats_) {
      step_together(group.params(), group.options(), rest);
      continue;
    }
    for (const auto& round : rounds_of(group.params())) {
      step_together(round, group.options(), rest);
    }
  }
  if (rest.empty()) return loss;
  if (recording) refuse_recording();
  // The optimizer itself cannot look on the device.
  if (!found_inf_.defined() || found_inf_.item<float>() == 0) let_optimizer_update(rest);
  return loss;
}

void GroupedStep::step_unless(const at::Tensor& found_inf) {
  const OverflowWatch watch(found_inf_, found_inf);
  step(nullptr);
}

void GroupedStep::ended(bool skipped) {
  if (skipped) {
    for (const at::Tensor& parameter : counted_ahead_) {
      if (int64_t* counter = counter_of(parameter)) --*counter;
    }
  }
  counted_ahead_.clear();
}

void GroupedStep::step_together(at::TensorList parameters,
                                const torch::optim::OptimizerOptions& options, Rest& rest) {
  collect(parameters, options, rest);
  for (TensorBucket& bucket : buckets_) {
    update(bucket, options);
    // A recorded update is made, and counted, by the replays.
    if (auto* actions = device::ReplayActions::current()) {
      actions->add_after([parameters = bucket.parameters] { note_writes(parameters); });
      continue;
    }
    note_writes(bucket.parameters);
    for (int64_t* counter : bucket.counters) *counter = bucket.step;
    if (found_inf_.defined()) counted_ahead(bucket.parameters);
  }
  buckets_.clear();
}

void GroupedStep::collect(at::TensorList parameters, const torch::optim::OptimizerOptions& options,
                          Rest& rest) {
  buckets_.clear();  // of a step that threw
  for (const at::Tensor& parameter : parameters) {
    const at::Tensor& gradient = parameter.grad();
    if (!gradient.defined()) continue;
    if (gradient.layout() != c10::kStrided || gradient.device() != parameter.device() ||
        !is_plain(parameter) || !has_kernel(parameter)) {
      rest.push_back(parameter);
      continue;
    }
    std::optional<Entry> entry = enter(parameter, options);
    if (!entry) {
      rest.push_back(parameter);
      continue;
    }
    TensorBucket& bucket = bucket_of(parameter, *entry);
    bucket.parameters.push_back(parameter);
    bucket.gradients.push_back(gradient_like(parameter, gradient));
    for (size_t column = 0; column < entry->state.size(); ++column) {
      at::Tensor& state = entry->state[column];
      if (state.defined()) bucket.state[column].push_back(std::move(state));
    }
    if (entry->counter != nullptr) bucket.counters.push_back(entry->counter);
  }
}

TensorBucket& GroupedStep::bucket_of(const at::Tensor& parameter, const Entry& entry) {
  for (TensorBucket& bucket : buckets_) {
    if (bucket.step == entry.step && bucket.dtype == parameter.scalar_type() &&
        bucket.device == parameter.device()) {
      return bucket;
    }
  }
  return buckets_.emplace_back(TensorBucket{
      .device = parameter.device(), .dtype = parameter.scalar_type(), .step = entry.step});
}

// Modules that share a parameter list it once each. Looked for again only where parameters came in.
void GroupedStep::look_for_repeated_parameters() {
  size_t parameters = 0;
  for (const auto& group : optimizer_.param_groups()) parameters += group.params().size();
  if (parameters == parameters_known_) return;
  std::unordered_set<const void*> distinct;
  for (const auto& group : optimizer_.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      distinct.insert(parameter.unsafeGetTensorImpl());
    }
  }
  repeats_ = distinct.size() != parameters;
  parameters_known_ = parameters;
}

// A replay updates the parameters that were there, and looks at their options.
void GroupedStep::check_groups_before_replays() {
  using Known = std::pair<const torch::optim::OptimizerOptions*, size_t>;
  const auto present = [this] {
    std::vector<Known> groups;
    for (const auto& group : optimizer_.param_groups()) {
      groups.emplace_back(&group.options(), group.params().size());
    }
    return groups;
  };
  device::ReplayActions::current()->add_check(
      [present, known = present()] { return present() == known; });
}

void GroupedStep::let_optimizer_update(const Rest& rest) {
  std::unordered_set<const void*> left;
  for (const at::Tensor& parameter : rest) left.insert(parameter.unsafeGetTensorImpl());
  HiddenGradients hidden;
  for (const auto& group : optimizer_.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (left.count(parameter.unsafeGetTensorImpl()) == 0) hidden.hide(parameter);
    }
  }
  optimizer_.step();
  note_writes(rest);
}

}  // namespace accelerate
