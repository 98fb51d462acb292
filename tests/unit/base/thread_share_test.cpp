// Threads of ranks that nobody shared the cores out to.
#include "base/thread_share.h"

#include <gtest/gtest.h>

namespace accelerate {
namespace {

TEST(ThreadShare, RanksSideBySideShareTheCores) {
  EXPECT_EQ(thread_share({.local_ranks = 2, .allowed_cores = 8, .all_cores = 8}), 4);
  EXPECT_EQ(thread_share({.local_ranks = 3, .allowed_cores = 8, .all_cores = 8}), 2);
  EXPECT_EQ(thread_share({.local_ranks = 16, .allowed_cores = 8, .all_cores = 8}), 1);
}

TEST(ThreadShare, IsLeftAloneWhereSomebodyDecidedIt) {
  EXPECT_EQ(thread_share({.local_ranks = 1, .allowed_cores = 8, .all_cores = 8}), std::nullopt);
  EXPECT_EQ(
      thread_share({.local_ranks = 2, .allowed_cores = 8, .all_cores = 8, .is_decided = true}),
      std::nullopt);
  // srun has bound the rank to cores of its own.
  EXPECT_EQ(thread_share({.local_ranks = 2, .allowed_cores = 4, .all_cores = 8}), std::nullopt);
}

}  // namespace
}  // namespace accelerate
