// The dispatch key of touched tensors.
#pragma once

#include <c10/core/DispatchKey.h>

namespace accelerate::compat {

// Above autograd and autocast, and used by nobody else: it belongs to an abandoned package.
inline constexpr c10::DispatchKey kTouchedKey = c10::DispatchKey::DeferredInit;

// From the first call on, operations on touched tensors ask for their values. Any thread. Programs
// that make no such tensor pay nothing.
void register_touched_key();

}  // namespace accelerate::compat
