#include "core/own_steps.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <utility>

#include "device/replay_actions.h"

namespace accelerate {
namespace {

constexpr size_t kMostSampledParameters = 4;
constexpr int64_t kMostSampledValues = 64;  // of each
// All of the movement is that of an update, but for rounding.
constexpr double kMostOff = 0.1;

at::Tensor first_with_gradient(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) return parameter;
    }
  }
  return {};
}

// From one sampled value to the next; they are spread over all of the tensor.
int64_t sample_stride(const at::Tensor& tensor) {
  return (tensor.numel() + kMostSampledValues - 1) / kMostSampledValues;
}

// Calls `visit` with the sampled values of a contiguous tensor on the host.
template <class Visit>
void for_few_values(const at::Tensor& tensor, Visit visit) {
  const auto visit_all = [&](const auto* values) {
    const int64_t stride = sample_stride(tensor);
    for (int64_t i = 0; i < tensor.numel(); i += stride) visit(static_cast<double>(values[i]));
  };
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, tensor.scalar_type(), "few_values",
      [&] { visit_all(static_cast<const scalar_t*>(tensor.const_data_ptr())); });
}

// As a parameter of this type holds it.
double rounded_to(at::ScalarType type, double value) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "rounded_to", [&] {
    return static_cast<double>(static_cast<scalar_t>(value));
  });
}

at::Tensor few_values_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : tensors) {
    values.push_back(tensor.detach().view(-1).slice(0, 0, std::nullopt, sample_stride(tensor)));
  }
  return at::cat(values).to(at::kDouble);
}

bool can_be_sampled(const at::Tensor& parameter, const at::Tensor& gradient) {
  const at::ScalarType type = parameter.scalar_type();
  const bool known_type =
      type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
  // What is only noted on XLA devices has no memory yet, and looking would cut the graph.
  if (parameter.device().type() == c10::kXLA) return false;
  return known_type && gradient.defined() && !gradient.is_sparse() &&
         gradient.scalar_type() == type && parameter.numel() > 0 && parameter.is_contiguous() &&
         gradient.is_contiguous();
}

}  // namespace

std::optional<OwnSteps::Sample> OwnSteps::sample_of(const torch::optim::Optimizer& optimizer) {
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer) == nullptr) return std::nullopt;
  for (const auto& group : optimizer.param_groups()) {
    const auto& options = static_cast<const torch::optim::SGDOptions&>(group.options());
    if (options.momentum() != 0 || options.lr() == 0) continue;
    Sample sample;
    std::vector<at::Tensor> gradients;
    // From the last on: those next to the loss hardly ever have a gradient of zeros.
    for (size_t i = group.params().size(); i-- > 0;) {
      const at::Tensor& parameter = group.params()[i];
      if (!can_be_sampled(parameter, parameter.grad())) continue;
      if (!gradients.empty() && !parameter.options().type_equal(sample.parameters[0].options())) {
        continue;
      }
      sample.parameters.push_back(parameter);
      sample.versions.push_back(parameter._version());
      sample.memory.push_back(parameter.const_data_ptr());
      gradients.push_back(parameter.grad());
      if (gradients.size() == kMostSampledParameters) break;
    }
    if (gradients.empty()) continue;
    const at::ScalarType type = sample.parameters[0].scalar_type();
    if (sample.is_on_host()) {
      for (const at::Tensor& parameter : sample.parameters) {
        for_few_values(parameter, [&](double value) { sample.values_before.push_back(value); });
      }
      for (const at::Tensor& gradient : gradients) {
        for_few_values(gradient, [&](double value) {
          const double before = sample.values_before[sample.values_expected.size()];
          const double direction = value + options.weight_decay() * before;
          sample.values_expected.push_back(rounded_to(type, before - options.lr() * direction));
        });
      }
      return sample;
    }
    sample.before = few_values_of(sample.parameters);
    at::Tensor direction = few_values_of(gradients);
    if (options.weight_decay() != 0) {
      direction = direction.add(sample.before, options.weight_decay());
    }
    sample.expected = sample.before.sub(direction, options.lr()).to(type).to(at::kDouble);
    return sample;
  }
  return std::nullopt;
}

bool OwnSteps::Sample::was_changed() const {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i]._version() != versions[i]) return true;
    if (parameters[i].const_data_ptr() != memory[i]) return true;
  }
  return false;
}

bool OwnSteps::Sample::is_updated() const {
  double moved = 0;
  double off = 0;
  size_t index = 0;
  for (const at::Tensor& parameter : parameters) {
    for_few_values(parameter, [&](double now) {
      const double was = values_before[index];
      const double expects = values_expected[index++];
      if (!std::isfinite(was)) return;
      if (!std::isfinite(now) && !std::isfinite(expects)) {
        moved += 1;  // by a gradient that overflowed
        return;
      }
      moved += std::abs(now - was);
      off += std::abs(now - expects);
    });
  }
  return moved > 0 && std::isfinite(off) && off <= moved * kMostOff;
}

at::Tensor OwnSteps::Sample::is_updated_on_device() const {
  const at::Tensor now = few_values_of(parameters);
  const at::Tensor were_numbers = before.isfinite();
  // By a gradient that overflowed.
  const at::Tensor lost =
      now.isfinite().logical_or_(expected.isfinite()).logical_not_().logical_and_(were_numbers);
  const at::Tensor compared = were_numbers.logical_and(lost.logical_not());
  const at::Tensor moved = at::where(compared, (now - before).abs(), lost.to(at::kDouble)).sum();
  const at::Tensor off = at::where(compared, (now - expected).abs(), at::zeros_like(now)).sum();
  return (moved.gt(0) & off.isfinite() & off.le(moved * kMostOff)).to(at::kFloat);
}

void OwnSteps::note(const std::vector<const torch::optim::Optimizer*>& optimizers,
                    GradientStage stage) {
  notes_.clear();
  if (device::ReplayActions::current() != nullptr) return;  // nothing happens yet
  ++passes_;
  noted_by_ = std::this_thread::get_id();
  const at::NoGradGuard no_grad;
  for (const torch::optim::Optimizer* optimizer : optimizers) {
    at::Tensor parameter = first_with_gradient(*optimizer);
    if (!parameter.defined()) continue;
    const at::Tensor gradient = parameter.grad();
    Note made{.optimizer = optimizer,
              .stage = stage,
              .parameter = parameter,
              .gradient = c10::weak_intrusive_ptr<c10::TensorImpl>(gradient.getIntrusivePtr()),
              .gradient_version = gradient._version(),
              .trace = StepTrace::of(*optimizer, parameter)};
    if (!made.trace) made.sample = sample_of(*optimizer);
    if (made.trace || made.sample) notes_.push_back(std::move(made));
  }
}

void OwnSteps::forget(const torch::optim::Optimizer& optimizer) {
  std::erase_if(notes_, [&](const Note& note) { return note.optimizer == &optimizer; });
}

void OwnSteps::forget(const std::vector<at::Tensor>& parameters) {
  forget_notes(notes_, parameters);
}

void OwnSteps::forget_all() {
  notes_.clear();
  doubts_.clear();
}

bool OwnSteps::is_outdated(const Note& note) {
  const at::Tensor& gradient = note.parameter.grad();
  if (!gradient.defined()) return false;
  if (gradient.unsafeGetTensorImpl() != note.gradient._unsafe_get_target()) return true;
  // zero_grad(false) and a pass after it are two changes in place. One alone is no new gradient: it
  // was only zeroed, as after a step, or another loss was added to it.
  return gradient._version() > note.gradient_version + 1;
}

std::optional<GradientStage> OwnSteps::look() const {
  if (notes_.empty() || device::ReplayActions::current() != nullptr) return std::nullopt;
  for (const Note& note : notes_) {
    if (!note.trace || is_outdated(note)) continue;
    const auto now = StepTrace::of(*note.optimizer, note.parameter);
    if (now && now->is_past(*note.trace)) return note.stage;
  }
  return std::nullopt;
}

std::optional<GradientStage> OwnSteps::compare(Wait wait) {
  if (empty() || device::ReplayActions::current() != nullptr) return std::nullopt;
  if (const auto seen = look()) return seen;
  const at::NoGradGuard no_grad;
  for (const Note& note : notes_) {
    if (!note.sample || is_outdated(note) || note.sample->was_changed()) continue;
    if (!note.sample->is_on_host()) {
      doubts_.add(note.sample->is_updated_on_device(), note.stage, passes_);
    } else if (note.sample->is_updated()) {
      return note.stage;
    }
  }
  return doubts_.read(wait, passes_);
}

}  // namespace accelerate
