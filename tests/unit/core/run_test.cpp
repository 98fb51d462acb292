// accelerate::run(), the way out of main().
#include "accelerate/run.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <stdexcept>

namespace accelerate {
namespace {

template <class Body>
std::string errors_of(Body body, int status) {
  testing::internal::CaptureStderr();
  const int got = run(body);
  std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(got, status);
  return text;
}

TEST(Run, ReturnsWhatTheBodyReturns) {
  EXPECT_EQ(errors_of([] {}, 0), "");
  EXPECT_EQ(errors_of([] { return 3; }, 3), "");
}

TEST(Run, AnErrorIsPrintedAndHasACodeOfItsOwn) {
  const auto body = [] { throw DataError({.what = "empty", .where = "a.csv", .hint = "fill it"}); };
  EXPECT_EQ(errors_of(body, kErrorExitCode), "DataError: empty\n  at   a.csv\n  try  fill it\n");
  EXPECT_EQ(kErrorExitCode, 70);
}

// That of the user's own code too, which knows nothing of ranks; one that is there stays.
TEST(Run, AnErrorSaysOnWhichRankItWasThrown) {
  const auto body = [] { throw DataError({.what = "empty"}); };
  setenv("RANK", "3", 1);
  setenv("WORLD_SIZE", "4", 1);
  setenv("LOCAL_RANK", "1", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "localhost", 1);
  setenv("MASTER_PORT", "1", 1);
  EXPECT_EQ(errors_of(body, kErrorExitCode), "[rank 3 of 4] DataError: empty\n");
  const auto stamped = [] {
    UsageError error({.what = "no"});
    error.set_rank(1, 2);
    throw error;
  };
  EXPECT_EQ(errors_of(stamped, kErrorExitCode), "[rank 1 of 2] UsageError: no\n");
  setenv("RANK", "many", 1);
  EXPECT_EQ(errors_of(body, kErrorExitCode), "DataError: empty\n");
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    unsetenv(name);
  }
}

TEST(Run, OtherExceptionsArePrintedWithoutStackFrames) {
  EXPECT_EQ(errors_of([] { throw std::runtime_error("no room"); }, 1), "no room\n");
  const std::string text = errors_of([] { TORCH_CHECK(false, "sizes differ"); }, 1);
  EXPECT_EQ(text, "sizes differ\n");
}

TEST(Run, WhatIsInsideIsDestroyedFirst) {
  bool is_gone = false;
  struct Guard {
    bool& is_gone;
    ~Guard() { is_gone = true; }
  };
  const auto body = [&] {
    const Guard guard{is_gone};
    throw UsageError({.what = "no"});
  };
  errors_of(body, kErrorExitCode);
  EXPECT_TRUE(is_gone);
}

}  // namespace
}  // namespace accelerate
