#include "compat/replay_actions.h"

namespace accelerate::compat {
namespace {

thread_local ReplayActions* the_current = nullptr;
thread_local int kept_gradients = 0;

}  // namespace

ReplayActions* ReplayActions::current() { return the_current; }

ReplayActions::Scope::Scope(ReplayActions& actions) { the_current = &actions; }
ReplayActions::Scope::~Scope() { the_current = nullptr; }

KeptGradients::KeptGradients() { ++kept_gradients; }
KeptGradients::~KeptGradients() { --kept_gradients; }
bool KeptGradients::active() { return kept_gradients > 0; }

}  // namespace accelerate::compat
