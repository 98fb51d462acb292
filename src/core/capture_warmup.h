// How many steps are run before one is recorded.
#pragma once

#include <algorithm>

namespace accelerate {

// `wanted` of them, but as many as it takes until passes on `ranks` ranks repeat: libtorch's
// reducer rebuilds its buckets after the first passes, which averages of `flat` parameters do
// without.
inline int warmup_steps(int wanted, int ranks, bool flat) {
  constexpr int kPassesOfReducer = 11;
  return ranks > 1 && !flat ? std::max(wanted, kPassesOfReducer) : wanted;
}

}  // namespace accelerate
