// What tests of failing communication share.
#pragma once

#include "multiproc/group.h"

namespace accelerate::test {

// Far longer than a test may take: an error that comes in time did not come from the timeout.
inline constexpr std::chrono::minutes kTimeout{10};
// From the loss of a peer to the end of the last survivor. On an idle machine that takes half a
// second where the peer is gone and a library below notices, up to 4 s where none does (its return,
// the grace) or where the peer is only stopped (its answer is waited for). The rest is for a busy
// machine; what hangs, hangs for kTimeout.
inline constexpr std::chrono::seconds kSoon{10};
// Short, for the tests that wait for it.
inline constexpr std::chrono::seconds kShort{3};

inline ProcessGroupOptions with_timeout(std::chrono::milliseconds timeout) {
  return {.timeout = timeout,
          .rendezvous_timeout = std::chrono::seconds(50),
          .cuda_backend = CudaBackend::kGloo};
}

}  // namespace accelerate::test
