// Small tools that every room uses.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <string>
#include <utility>

#include "base/fnv1a.h"
#include "base/random_id.h"
#include "base/unique_fd.h"

namespace accelerate {
namespace {

// The values of its authors; those of another hash would part ranks of different builds.
TEST(Fnv1a, HasTheValuesOfItsAuthors) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325U);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8U);
  EXPECT_EQ(fnv1a("\xff"), (Fnv1a::kBasis ^ 0xffU) * Fnv1a::kPrime);  // no sign
}

TEST(Fnv1a, TakesItsBytesInParts) {
  const std::string bar = "bar";
  EXPECT_EQ(Fnv1a().add("foo").add(bar.data(), bar.size()).value(), fnv1a("foobar"));
}

TEST(RandomId, HasSixteenDigitsAndComesOnce) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = random_id();
    EXPECT_EQ(id.size(), 16U);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
    EXPECT_TRUE(seen.insert(id).second) << id;
  }
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(UniqueFd, ClosesWhatItOwnsAndNothingElse) {
  int number = -1;
  {
    UniqueFd first(open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = first.get();
    ASSERT_TRUE(is_open(number));
    UniqueFd second = std::move(first);
    EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(second.get(), number);
  }
  EXPECT_FALSE(is_open(number));
  UniqueFd kept(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int released = kept.release();
  EXPECT_FALSE(kept);
  kept.reset();
  EXPECT_TRUE(is_open(released));
  kept = UniqueFd(released);
  kept = UniqueFd();
  EXPECT_FALSE(is_open(released));
}

}  // namespace
}  // namespace accelerate
