// Seeds of this process.
#include <accelerate/errors.h>
#include <accelerate/random.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdlib>
#include <map>

namespace accelerate {
namespace {

at::Tensor drawn_after(uint64_t seed, const SeedOptions& options = {}) {
  set_seed(seed, options);
  return torch::rand({4});
}

TEST(SetSeed, EqualSeedsDrawEqualNumbers) {
  EXPECT_TRUE(drawn_after(7).equal(drawn_after(7)));
  EXPECT_FALSE(drawn_after(7).equal(drawn_after(8)));
  torch::manual_seed(7);
  EXPECT_TRUE(torch::rand({4}).equal(drawn_after(7)));
}

TEST(SetSeed, DeviceSpecificSeedsAreOffsetByTheRank) {
  EXPECT_EQ(set_seed(7, {.device_specific = true, .rank = 3}), 10);
  EXPECT_EQ(set_seed(7, {.rank = 3}), 7);
  EXPECT_TRUE(drawn_after(7, {.device_specific = true, .rank = 3}).equal(drawn_after(10)));
}

TEST(SetSeed, TheRankIsReadFromTheEnvironmentBeforeThereIsAnAccelerator) {
  const std::map<const char*, const char*> launched{{"RANK", "2"},
                                                    {"WORLD_SIZE", "4"},
                                                    {"LOCAL_RANK", "2"},
                                                    {"LOCAL_WORLD_SIZE", "4"},
                                                    {"MASTER_ADDR", "127.0.0.1"},
                                                    {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : launched) setenv(name, value, 1);
  EXPECT_EQ(set_seed(5, {.device_specific = true}), 7);
  for (const auto& [name, value] : launched) unsetenv(name);
  EXPECT_EQ(set_seed(5, {.device_specific = true}), 5);
}

TEST(SetSeed, DeterministicAlgorithmsStayOn) {
  set_seed(5);
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
  set_seed(5, {.deterministic = true});
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().deterministicCuDNN());
  set_seed(5);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  at::globalContext().setDeterministicAlgorithms(false, false);
  at::globalContext().setDeterministicCuDNN(false);
}

TEST(RngTypeTest, IsWrittenAsEnumeratorOrAsTheReferenceSpellsIt) {
  const std::vector<RngType> types{"torch", "cuda", "generator"};
  EXPECT_EQ(types, (std::vector<RngType>{RngType::kTorch, RngType::kCuda, RngType::kGenerator}));
  try {
    (void)RngType("numpy");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "UsageError: 'numpy' is not a type of random state\n"
                 "  at   rng_types\n"
                 "  try  one of torch, cuda, xla, generator");
  }
}

}  // namespace
}  // namespace accelerate
