// What a local job is: decided once by the command line, only read by everything after it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace accelerate::launch {

struct LaunchPlan {
  std::vector<std::string> command{};  // argv of every worker; the first is the path of a file
  int num_processes = 1;
  std::string main_address = "127.0.0.1";  // where rank 0 serves the rendezvous
  int main_port = 0;
  bool use_cpu = false;
  std::optional<std::string> mixed_precision{};  // no, fp16, bf16 or fp8; unset: the worker decides
  std::optional<int> num_cpu_threads_per_process{};  // unset: the cores shared out evenly
  bool prefix_output = false;                        // "[rank 1] " before each line
  // How long workers may take to end, once another one failed or once the launcher was told to
  // stop, before they are killed. The second is longer: a worker may save its state then.
  std::chrono::milliseconds failure_grace{5'000};
  std::chrono::milliseconds signal_grace{30'000};
};

}  // namespace accelerate::launch
