// For test programs that fork ranks: each of them gets the device of the tests ready first, and
// draws the same random numbers each time. Left alone, libtorch draws its seeds from the system.
#pragma once

#include "support/rank_process.h"
#include "support/test_device.h"

namespace accelerate::test {

inline const bool kRanksHaveTheirDevice = [] {
  set_rank_setup([](uint64_t seed) {
    (void)test_device();
    seed_tests(seed);
  });
  return true;
}();

}  // namespace accelerate::test
