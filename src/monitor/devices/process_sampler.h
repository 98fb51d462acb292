// What a machine and processes on it use, from /proc.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>

namespace accelerate::monitor {

struct Usage {
  double busy = 0;  // of the machine: part of all processors; of a process: processors kept busy
  uint64_t memory_bytes = 0;
};

// Reads /proc, or a folder that looks like it. Used by one thread.
class ProcessSampler {
 public:
  explicit ProcessSampler(std::filesystem::path proc = "/proc") : proc_(std::move(proc)) {}

  // Since the call before; nothing at the first call, and where the kernel tells nothing.
  std::optional<Usage> machine();
  // Of the process and all that it has started: what is resident, also where they share it. Nothing
  // where there is no such process.
  std::optional<Usage> process(pid_t pid);

  uint64_t machine_memory_bytes() const;
  int processors() const;

 private:
  struct Times {
    double busy = 0;
    double all = 0;
  };
  struct Ticks {
    uint64_t used = 0;
    std::chrono::steady_clock::time_point at{};
  };

  std::filesystem::path proc_;
  Times machine_before_;
  std::map<pid_t, Ticks> before_;
};

}  // namespace accelerate::monitor
