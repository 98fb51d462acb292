// The search for a batch size in one process.
#include <accelerate/errors.h>
#include <accelerate/find_batch_size.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

namespace accelerate {
namespace {

using testing::ElementsAre;

[[noreturn]] void run_out_of_memory() { throw std::runtime_error("CUDA out of memory. Tried to"); }

TEST(FindBatchSize, TriesTheCallersOwnSizes) {
  std::vector<int64_t> tried;
  const int64_t found = find_executable_batch_size(
      [&](int64_t size) {
        tried.push_back(size);
        if (size > 8) run_out_of_memory();
        return size;
      },
      {.starting_batch_size = 16, .reduce = [](int64_t size) { return size / 4; }});
  EXPECT_EQ(found, 4);
  EXPECT_THAT(tried, ElementsAre(16, 4));
}

TEST(FindBatchSize, ReturnsWhatTheFunctionReturns) {
  EXPECT_EQ(find_executable_batch_size([](int64_t size) { return std::to_string(size); }), "128");
  const auto pointer =
      find_executable_batch_size([](int64_t size) { return std::make_unique<int64_t>(size); });
  EXPECT_EQ(*pointer, 128);
  int calls = 0;
  find_executable_batch_size([&](int64_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(FindBatchSize, OtherErrorsPassAtOnce) {
  int calls = 0;
  const auto fail = [&](int64_t) {
    ++calls;
    throw std::logic_error("a bug");
  };
  EXPECT_THROW(find_executable_batch_size(fail), std::logic_error);
  EXPECT_EQ(calls, 1);
}

TEST(FindBatchSize, AReductionThatDoesNotReduceIsRefused) {
  const auto never_fits = [](int64_t) { run_out_of_memory(); };
  try {
    find_executable_batch_size(never_fits, {.reduce = [](int64_t size) { return size; }});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(), "the batch size after 128 must be smaller, not 128");
  }
}

TEST(FindBatchSize, RealAllocationsThatFailAreRecognised) {
  // 2 ^ 62 bytes exist nowhere.
  const auto allocate = [](int64_t size) {
    if (size > 100) (void)torch::empty({int64_t{1} << 62}, at::kByte);
    return size;
  };
  EXPECT_EQ(find_executable_batch_size(allocate), 92);
  EXPECT_TRUE(should_reduce_batch_size(std::bad_alloc()));
  EXPECT_TRUE(should_reduce_batch_size(c10::OutOfMemoryError({"f", "f.cpp", 1}, "no memory")));
}

}  // namespace
}  // namespace accelerate
