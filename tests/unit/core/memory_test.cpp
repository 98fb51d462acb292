// Memory that is measured and let go, on the CPU.
#include <accelerate/memory.h>
#include <accelerate/memory_tracker.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <optional>
#include <thread>

namespace accelerate {
namespace {

constexpr int64_t kMegabyte = 1024 * 1024;

// Touched, so that it is resident.
at::Tensor occupy(int64_t megabytes) { return torch::ones({megabytes * kMegabyte}, at::kByte); }

TEST(MemoryTrackerTest, SeesWhatABlockKeepsAndWhatItNeededInBetween) {
  const MemoryTracker tracker("block");
  const at::Tensor kept = occupy(64);
  (void)occupy(200);
  const MemoryReport report = tracker.report();
  // Other memory of the process comes and goes: a few megabytes of room.
  EXPECT_GE(report.host.used_bytes(), 56 * kMegabyte);
  EXPECT_LE(report.host.used_bytes(), 128 * kMegabyte);
  EXPECT_GE(report.host.peaked_bytes(), 256 * kMegabyte);
  EXPECT_LE(report.host.peaked_bytes(), 400 * kMegabyte);
  EXPECT_GT(report.host.begin_bytes, 0);
  EXPECT_FALSE(report.device_memory.has_value());
}

TEST(MemoryTrackerTest, APeakBeforeTheBlockIsNotItsOwn) {
  (void)occupy(300);
  const MemoryTracker tracker("block");
  (void)occupy(100);
  const int64_t peaked = tracker.report().host.peaked_bytes();
  EXPECT_GE(peaked, 95 * kMegabyte);
  EXPECT_LE(peaked, 200 * kMegabyte);
}

TEST(MemoryTrackerTest, MeasuresTime) {
  const MemoryTracker tracker("block");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double first = tracker.report().wall_time.count();
  EXPECT_GE(first, 0.020);
  EXPECT_GE(tracker.report().wall_time.count(), first);
}

TEST(MemoryTrackerTest, ReportIsReadable) {
  MemoryReport report{.name = "epoch 3", .wall_time = std::chrono::duration<double>(12.3456)};
  report.host = {.begin_bytes = 1024 * kMegabyte,
                 .end_bytes = 1000 * kMegabyte,
                 .peak_bytes = 1536 * kMegabyte};
  EXPECT_EQ(report.to_string(),
            "epoch 3: 12.346 s\n"
            "  host memory: 1.00 GB at the start, -24.00 MB at the end, +512.00 MB at the peak of "
            "1.50 GB");
  report.device = c10::Device("cuda:1");
  report.device_memory = {.begin_bytes = 100, .end_bytes = 1636, .peak_bytes = 2148};
  EXPECT_EQ(report.to_string(),
            "epoch 3: 12.346 s\n"
            "  host memory: 1.00 GB at the start, -24.00 MB at the end, +512.00 MB at the peak of "
            "1.50 GB\n"
            "  cuda:1 memory: 100 bytes at the start, +1.50 KB at the end, +2.00 KB at the peak of "
            "2.10 KB");
}

TEST(ReleaseMemory, EmptiesWhatHoldsMemory) {
  at::Tensor tensor = torch::ones({2});
  const auto weak = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
  auto shared = std::make_shared<int>(3);
  auto unique = std::make_unique<int>(3);
  std::optional<at::Tensor> maybe = torch::ones({2});
  std::vector<at::Tensor> many{torch::ones({2})};
  std::string text(1000, 'x');
  torch::nn::Linear holder(2, 2);
  release_memory(tensor, shared, unique, maybe, many, text, holder);
  EXPECT_FALSE(tensor.defined());
  EXPECT_TRUE(weak.expired());
  EXPECT_EQ(shared, nullptr);
  EXPECT_EQ(unique, nullptr);
  EXPECT_FALSE(maybe.has_value());
  EXPECT_EQ(many.capacity(), 0);
  EXPECT_TRUE(text.empty());
  EXPECT_TRUE(holder.is_empty());
}

// Without a GPU nothing is loaded or asked for it.
TEST(ClearDeviceCacheTest, LeavesHostMemoryAndTensorsAlone) {
  const at::Tensor kept = torch::arange(5);
  clear_device_cache();
  EXPECT_TRUE(kept.equal(torch::arange(5)));
}

}  // namespace
}  // namespace accelerate
