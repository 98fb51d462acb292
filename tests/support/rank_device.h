// For test programs that fork ranks: each of them gets the device of the tests ready first.
#pragma once

#include "support/rank_process.h"
#include "support/test_device.h"

namespace accelerate::test {

inline const bool kRanksHaveTheirDevice = [] {
  set_rank_setup([] { (void)test_device(); });
  return true;
}();

}  // namespace accelerate::test
