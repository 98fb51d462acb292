// How much memory the tensors of a process have.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "support/rank_device.h"

namespace accelerate::test {

inline std::atomic<int64_t> live_bytes = 0, most_bytes = 0;

// Counts what tensors of the CPU hold.
struct CountingAllocator final : c10::Allocator {
  struct Block {
    c10::DataPtr memory;
    int64_t bytes;
  };
  c10::DataPtr allocate(size_t bytes) override {
    auto block = std::make_unique<Block>(
        Block{.memory = usual->allocate(bytes), .bytes = static_cast<int64_t>(bytes)});
    const int64_t now = live_bytes += block->bytes;
    int64_t most = most_bytes;
    while (now > most && !most_bytes.compare_exchange_weak(most, now)) {
    }
    void* begin = block->memory.get();
    return {begin, block.release(), &give_back, c10::Device(c10::kCPU)};
  }
  static void give_back(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    live_bytes -= block->bytes;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    usual->copy_data(to, from, bytes);
  }
  c10::Allocator* usual = c10::GetDefaultCPUAllocator();
};

// What tensors of the test device hold, counted by its allocator. For the rest of the process.
struct MemoryCount {
  MemoryCount() {
    if (!tests_on_gpu()) c10::SetAllocator(c10::kCPU, new CountingAllocator, /*priority=*/255);
  }
  int64_t now() const { return tests_on_gpu() ? of_gpu().current : live_bytes.load(); }
  int64_t most() const { return tests_on_gpu() ? of_gpu().peak : most_bytes.load(); }
  void begin_most() const {
    most_bytes = live_bytes.load();
    if (tests_on_gpu()) c10::getDeviceAllocator(c10::kCUDA)->resetPeakStats(test_device().index());
  }

 private:
  static c10::CachingAllocator::Stat of_gpu() {
    return c10::getDeviceAllocator(c10::kCUDA)
        ->getDeviceStats(test_device().index())
        .allocated_bytes[0];
  }
};

}  // namespace accelerate::test
