// Operations that libtorch refuses because their results differ from run to run. Internal: users do
// not call it.
#pragma once

#include "accelerate/export.h"

namespace c10 {
class Error;
}

namespace accelerate::detail {

// Throws UsageError with the name of the operation, on the ranks that wait for this one too, if
// `error` is libtorch's refusal of an operation without a deterministic algorithm and an
// accelerator asked for it (AcceleratorOptions::deterministic). Returns otherwise. `where` is what
// ran. Not collective.
ACCELERATE_EXPORT void refuse_nondeterminism(const c10::Error& error, const char* where);

}  // namespace accelerate::detail
