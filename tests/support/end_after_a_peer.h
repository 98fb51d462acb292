// A rank that fails, and is the last to end.
#pragma once

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace accelerate::test {

// Destroyed after the accelerator, by which the others notice that this rank fails: waits until one
// of them has ended and was collected.
struct EndAfterAPeer {
  std::vector<pid_t> peers{};

  ~EndAfterAPeer() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    const auto is_alive = [](pid_t pid) { return kill(pid, 0) == 0; };
    while (!peers.empty() && std::all_of(peers.begin(), peers.end(), is_alive) &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
};

}  // namespace accelerate::test
