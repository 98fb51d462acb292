// Ranks wait for files that take longer than the timeout of their group.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

// How long the disk of this process takes to make a file durable.
std::atomic<std::chrono::seconds> disk_delay{std::chrono::seconds(0)};

}  // namespace
}  // namespace accelerate::test

// In place of the C library's, for all libraries of this program.
extern "C" int fsync(int descriptor) {
  std::this_thread::sleep_for(accelerate::test::disk_delay.load());
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace accelerate::test {
namespace {

struct SlowDisk : Ranks {
  StateFolder folder;
};

TEST_F(SlowDisk, ModelsMayTakeLongerToWriteThanTheTimeout) {
  run(2, [&](const Rank& rank) {
    AcceleratorOptions options = on_cpu();
    options.process_group.timeout = std::chrono::seconds(4);
    Accelerator accelerator(options);
    auto model = accelerator.prepare(torch::nn::Linear(3, 2));
    if (rank.rank == 0) disk_delay = std::chrono::seconds(6);
    accelerator.save_model(model, folder / "model");
    EXPECT_TRUE(std::filesystem::exists(folder / "model" / "model.safetensors"));
    accelerator.wait_for_everyone();
  });
}

}  // namespace
}  // namespace accelerate::test
