// Copies of saved state that share no memory with the original.
#pragma once

#include "accelerate/state_dict.h"

namespace accelerate {

StateDict cloned(const StateDict& state);
StateValue cloned(const StateValue& value);

}  // namespace accelerate
