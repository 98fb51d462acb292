// What happens to a bucket of gradients between the backward pass and the network.
#pragma once

#include <memory>

#include "accelerate/comm_hook.h"
#include "compat/reducer.h"

namespace accelerate {

class PowerSgdHook;

// Makes `reducer`, which averages over `group`, send its buckets through the hook. At most once for
// a reducer, before its first backward pass. Not collective, but all ranks must do the same. Sparse
// gradients travel as they are. Returns the hook, which the reducer owns, if it keeps something
// from pass to pass, else null. Throws UsageError where the options do not go together.
PowerSgdHook* register_comm_hook(compat::GradientReducer& reducer,
                                 const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                 const CommHookOptions& options);

}  // namespace accelerate
