// Checks the keys of the dicts of a pickle.
#pragma once

#include "files/pickle/pickle_calls.h"

namespace accelerate::files {

// Throws as `calls` refuses if a key of a dict cannot be one in Python (a list, a tensor) or occurs
// twice. Cost: linear in the document, also where keys are shared.
void check_pickle_keys(const PickleDocument& document, const PickleCalls& calls);

}  // namespace accelerate::files
