#include "support/run_all_tests.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace accelerate::test {

int run_all_tests() {
  const int result = RUN_ALL_TESTS();
  if (result != 0 || GTEST_FLAG_GET(list_tests)) return result;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  if (all.test_to_run_count() == 0) {
    // One of several parts of a program that was divided may be empty.
    if (std::getenv("GTEST_TOTAL_SHARDS") != nullptr) return result;
    std::fprintf(stderr, "no test was run\n");
    return 1;
  }
  if (all.successful_test_count() > 0) return result;
  std::fprintf(stderr, "all tests were skipped\n");
  return kAllSkippedExitCode;
}

}  // namespace accelerate::test
