#include "device/replay_actions.h"

namespace accelerate::device {
namespace {

thread_local ReplayActions* the_current = nullptr;
thread_local int kept_gradients = 0;

}  // namespace

ReplayActions* ReplayActions::current() { return the_current; }

void ReplayActions::mark_gradients(
    const std::vector<std::pair<at::Tensor, at::Tensor>>& of_parameters) {
  for (const auto& [parameter, gradient] : of_parameters) {
    versions_[gradient.unsafeGetTensorImpl()] = gradient._version();
  }
}

bool ReplayActions::untouched(const at::Tensor& gradient) const {
  const auto found = versions_.find(gradient.unsafeGetTensorImpl());
  return found != versions_.end() && found->second == gradient._version();
}

ReplayActions::Scope::Scope(ReplayActions& actions) { the_current = &actions; }
ReplayActions::Scope::~Scope() { the_current = nullptr; }

KeptGradients::KeptGradients() { ++kept_gradients; }
KeptGradients::~KeptGradients() { --kept_gradients; }
bool KeptGradients::active() { return kept_gradients > 0; }

}  // namespace accelerate::device
