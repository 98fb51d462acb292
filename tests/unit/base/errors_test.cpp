#include "accelerate/errors.h"

#include <gtest/gtest.h>

namespace accelerate {
namespace {

TEST(Error, SaysWhatWhereAndWhatToDo) {
  const CheckpointError error(
      {.what = "optimizer.bin holds 148 tensors, the prepared AdamW has 150",
       .where = "runs/a/step_400/optimizer.bin",
       .hint = "prepare the model that was saved"});
  EXPECT_STREQ(error.what(),
               "CheckpointError: optimizer.bin holds 148 tensors, the prepared AdamW has 150\n"
               "  at   runs/a/step_400/optimizer.bin\n"
               "  try  prepare the model that was saved");
}

TEST(Error, LeavesOutWhatIsNotKnown) {
  EXPECT_STREQ(DataError({.what = "empty"}).what(), "DataError: empty");
}

TEST(Error, IsStampedWithTheFirstRankThatIsGiven) {
  UsageError error({.what = "no"});
  EXPECT_FALSE(error.rank().has_value());
  error.set_rank(3, 8);
  error.set_rank(1, 2);
  EXPECT_STREQ(error.what(), "[rank 3 of 8] UsageError: no");
  EXPECT_EQ(error.rank(), 3);
  EXPECT_EQ(error.message(), "no");
}

TEST(Error, IsCaughtByItsBases) {
  EXPECT_THROW(throw ConfigError({.what = "x"}), Error);
  EXPECT_THROW(throw CommError({.what = "x"}), std::runtime_error);
}

}  // namespace
}  // namespace accelerate
