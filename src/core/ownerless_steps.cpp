#include "core/ownerless_steps.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "device/replay_actions.h"

namespace accelerate {
namespace {

constexpr size_t kMostNotedParameters = 4;
constexpr int64_t kMostNotedValues = 64;  // of each
// The cosine of the angle between a movement and the way down the gradient, from where on it is
// taken for an update.
constexpr double kLeastAgainst = 0.4;

bool can_be_noted(const at::Tensor& parameter, const at::Tensor& gradient) {
  return gradient.defined() && gradient.layout() == at::kStrided && parameter.numel() > 0 &&
         parameter.is_floating_point() && gradient.is_floating_point() &&
         parameter.sizes() == gradient.sizes() &&  // not those of shards
         parameter.is_contiguous() && gradient.is_contiguous();
}

// A copy, as double.
at::Tensor noted_values(const at::Tensor& tensor) {
  const int64_t stride = (tensor.numel() + kMostNotedValues - 1) / kMostNotedValues;
  return tensor.detach().view(-1).slice(0, 0, std::nullopt, stride).to(at::kDouble, false, true);
}

}  // namespace

void OwnerlessSteps::note(const std::vector<at::Tensor>& parameters, GradientStage stage) {
  notes_.clear();
  if (device::ReplayActions::current() != nullptr) return;  // nothing happens yet
  ++passes_;
  stage_ = stage;
  const at::NoGradGuard no_grad;
  // From the last on: those next to the loss hardly ever have a gradient of zeros.
  for (size_t i = parameters.size(); i-- > 0 && notes_.size() < kMostNotedParameters;) {
    const at::Tensor& parameter = parameters[i];
    const at::Tensor& gradient = parameter.grad();
    if (!can_be_noted(parameter, gradient)) continue;
    if (!notes_.empty() && notes_[0].parameter.device() != parameter.device()) continue;
    notes_.push_back({.parameter = parameter,
                      .memory = parameter.const_data_ptr(),
                      .before = noted_values(parameter),
                      .gradient_before = noted_values(gradient),
                      .gradient = gradient.detach(),
                      .gradient_identity = gradient.unsafeGetTensorImpl(),
                      .gradient_version = static_cast<int64_t>(gradient._version())});
  }
}

void OwnerlessSteps::forget(const std::vector<at::Tensor>& parameters) {
  forget_notes(notes_, parameters);
}

void OwnerlessSteps::forget_all() {
  notes_.clear();
  doubts_.clear();
}

bool OwnerlessSteps::is_excused(const Note& note) const {
  if (note.parameter.const_data_ptr() != note.memory) return true;
  const at::Tensor& now = note.parameter.grad();
  if (now.defined() && now.unsafeGetTensorImpl() != note.gradient_identity) return true;
  // zero_grad(false) and a pass after it are two changes in place.
  return static_cast<int64_t>(note.gradient._version()) > note.gradient_version + 1;
}

std::optional<GradientStage> OwnerlessSteps::compare(OwnSteps::Wait wait) {
  if (empty() || device::ReplayActions::current() != nullptr) return std::nullopt;
  const at::NoGradGuard no_grad;
  // Over all that are compared: movement times gradient, and the squares of both.
  std::vector<at::Tensor> sums;
  for (const Note& note : notes_) {
    if (is_excused(note)) continue;
    const at::Tensor now = noted_values(note.parameter);
    const at::Tensor counts = note.before.isfinite() & note.gradient_before.isfinite();
    // By a gradient that overflowed.
    const at::Tensor lost = (note.before.isfinite() & now.isfinite().logical_not()).any();
    at::Tensor moved = at::where(counts & now.isfinite(), now - note.before, 0.0);
    at::Tensor uses = at::ones_like(lost);
    if (stage_ == GradientStage::kScaled) {
      // Somebody may have changed the gradient: set it to zero, as after a step, or unscaled it.
      const at::Tensor gradient = noted_values(note.gradient);
      uses = gradient.eq(0).all() | at::isclose(gradient, note.gradient_before, 0, 0, true).all();
    }
    moved = moved * uses;
    const at::Tensor slope = at::where(counts, note.gradient_before, 0.0);
    sums.push_back(at::stack({(moved * slope).sum(), moved.square().sum(), slope.square().sum(),
                              (lost & uses).to(at::kDouble)}));
  }
  if (!sums.empty()) {
    const at::Tensor all = at::stack(sums).sum(0);
    const at::Tensor against = all[0].lt((all[1] * all[2]).sqrt() * -kLeastAgainst);
    const at::Tensor is_step = (against | all[3].gt(0)).to(at::kFloat);
    if (is_step.is_cpu()) {
      if (is_step.item<float>() != 0) return stage_;
    } else {
      doubts_.add(is_step, stage_, passes_);
    }
  }
  return doubts_.read(wait, passes_);
}

}  // namespace accelerate
