// What tests of the CUDA part start from: a GPU, and a process of its own to use it in.
#pragma once

#include <gtest/gtest.h>

#include "accelerate/process_state.h"
#include "support/ranks.h"

// Skips the test, visibly, where there is no GPU. Where a test has ranks, in their bodies: they are
// forked from the test process, which must not have used the driver.
#define REQUIRE_GPU()                                                    \
  if (::accelerate::ProcessState::from_environment().gpu_count() == 0) { \
    GTEST_SKIP() << "no GPU";                                            \
  }                                                                      \
  static_assert(true, "takes the semicolon")

namespace accelerate::test {

// Runs a body in one process, without a launcher.
class LoneRank : public Ranks {
 protected:
  void alone(const RankBody& body) { run(1, body, {.launched = false}); }
};

}  // namespace accelerate::test
