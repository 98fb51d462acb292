#include "core/own_steps.h"

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include "accelerate/errors.h"
#include "compat/replay_actions.h"

namespace accelerate {
namespace {

constexpr size_t kMostSampledParameters = 4;
constexpr int64_t kMostSampledValues = 64;  // of each

at::Tensor first_with_gradient(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.grad().defined()) return parameter;
    }
  }
  return {};
}

// Spread over all of the tensor, which is contiguous.
at::Tensor few_values(const at::Tensor& tensor) {
  const int64_t step = std::max<int64_t>(1, tensor.numel() / kMostSampledValues);
  return tensor.detach().view(-1).slice(0, 0, std::nullopt, step);
}

at::Tensor few_values_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> values;
  for (const at::Tensor& tensor : tensors) values.push_back(few_values(tensor));
  return at::cat(values).to(at::kDouble);
}

bool can_be_sampled(const at::Tensor& parameter, const at::Tensor& gradient) {
  return gradient.defined() && !gradient.is_sparse() && parameter.numel() > 0 &&
         parameter.is_floating_point() && parameter.is_contiguous() && gradient.is_contiguous();
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
      sample.memory.push_back(parameter.data_ptr());
      gradients.push_back(parameter.grad());
      if (gradients.size() == kMostSampledParameters) break;
    }
    if (gradients.empty()) continue;
    sample.before = few_values_of(sample.parameters);
    at::Tensor direction = few_values_of(gradients);
    if (options.weight_decay() != 0) {
      direction = direction.add(sample.before, options.weight_decay());
    }
    sample.expected = sample.before.sub(direction, options.lr())
                          .to(sample.parameters[0].scalar_type())
                          .to(at::kDouble);
    return sample;
  }
  return std::nullopt;
}

at::Tensor OwnSteps::is_updated(const Sample& sample) {
  for (size_t i = 0; i < sample.parameters.size(); ++i) {
    const at::Tensor& parameter = sample.parameters[i];
    if (parameter._version() != sample.versions[i]) return {};
    if (parameter.data_ptr() != sample.memory[i]) return {};
  }
  const at::Tensor now = few_values_of(sample.parameters);
  const at::Tensor were_numbers = sample.before.isfinite();
  // By a gradient that overflowed.
  const at::Tensor lost = now.isfinite()
                              .logical_or_(sample.expected.isfinite())
                              .logical_not_()
                              .logical_and_(were_numbers);
  const at::Tensor compared = were_numbers.logical_and(lost.logical_not());
  const at::Tensor moved =
      at::where(compared, (now - sample.before).abs(), lost.to(at::kDouble)).sum();
  const at::Tensor off =
      at::where(compared, (now - sample.expected).abs(), at::zeros_like(now)).sum();
  // All of the movement is that of the update, but for rounding.
  constexpr double kMostOff = 0.1;
  return (moved.gt(0) & off.isfinite() & off.le(moved * kMostOff)).to(at::kFloat);
}

void OwnSteps::note(const std::vector<const torch::optim::Optimizer*>& optimizers,
                    GradientStage stage) {
  notes_.clear();
  if (compat::ReplayActions::current() != nullptr) return;  // nothing happens yet
  noted_by_ = std::this_thread::get_id();
  const at::NoGradGuard no_grad;
  for (const torch::optim::Optimizer* optimizer : optimizers) {
    at::Tensor parameter = first_with_gradient(*optimizer);
    if (!parameter.defined()) continue;
    Note made{.optimizer = optimizer,
              .stage = stage,
              .parameter = parameter,
              .gradient = parameter.grad().unsafeGetTensorImpl(),
              .trace = StepTrace::of(*optimizer, parameter)};
    if (!made.trace) made.sample = sample_of(*optimizer);
    if (made.trace || made.sample) notes_.push_back(std::move(made));
  }
}

void OwnSteps::forget(const torch::optim::Optimizer& optimizer) {
  std::erase_if(notes_, [&](const Note& note) { return note.optimizer == &optimizer; });
}

void OwnSteps::forget(const std::vector<at::Tensor>& parameters) {
  if (notes_.empty()) return;
  std::unordered_set<const void*> dropped;
  for (const at::Tensor& parameter : parameters) dropped.insert(parameter.unsafeGetTensorImpl());
  std::erase_if(notes_, [&](const Note& note) {
    return dropped.contains(note.parameter.unsafeGetTensorImpl());
  });
}

void OwnSteps::forget_all() {
  notes_.clear();
  doubts_.clear();
}

bool OwnSteps::is_outdated(const Note& note) {
  const at::Tensor& gradient = note.parameter.grad();
  return gradient.defined() && gradient.unsafeGetTensorImpl() != note.gradient;
}

void OwnSteps::settle_doubts(const char* where) {
  for (const Doubt& doubt : std::exchange(doubts_, {})) {
    if (doubt.is_step.value() != 0) refuse(doubt.stage, where);
  }
}

void OwnSteps::look(const char* where) {
  if (notes_.empty() || compat::ReplayActions::current() != nullptr) return;
  for (const Note& note : notes_) {
    if (!note.trace || is_outdated(note)) continue;
    const auto now = StepTrace::of(*note.optimizer, note.parameter);
    if (now && now->is_past(*note.trace)) refuse(note.stage, where);
  }
}

void OwnSteps::compare(const char* where) {
  if (empty() || compat::ReplayActions::current() != nullptr) return;
  look(where);
  settle_doubts(where);
  const at::NoGradGuard no_grad;
  bool on_host = true;
  for (const Note& note : notes_) {
    if (!note.sample || is_outdated(note)) continue;
    const at::Tensor is_step = is_updated(*note.sample);
    if (!is_step.defined()) continue;
    doubts_.push_back({.is_step = compat::HostCopy(is_step), .stage = note.stage});
    on_host = on_host && is_step.is_cpu();
  }
  if (on_host) settle_doubts(where);
}

void OwnSteps::compare_and_wait(const char* where) {
  compare(where);
  settle_doubts(where);
}

void OwnSteps::refuse(GradientStage stage, const char* where) {
  forget_all();  // told once
  throw UsageError(
      {.what = std::string("the optimizer that was given to prepare() was stepped itself, with "
                           "gradients that ") +
               (stage == GradientStage::kScaled ? "are still multiplied by the scale of the loss"
                                                : "still accumulate"),
       .where = where,
       .hint = "call step() of what prepare() returned; the parameters have moved, so load a "
               "checkpoint or begin again"});
}

}  // namespace accelerate
