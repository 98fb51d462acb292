// How fast the ranks exchange.
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "selftest/expect.h"

namespace accelerate::selftest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSecondsForEachSize = 0.2;
constexpr int kMostRounds = 50;

// The calls return before a GPU has done its work.
void wait_for_device(const at::Tensor& tensor) {
  if (!tensor.is_cpu()) tensor.flatten()[0].item<float>();
}

double seconds_of_all_reduce(Accelerator& accelerator, at::Tensor& tensor) {
  const auto start = Clock::now();
  accelerator.communicator().all_reduce(tensor, ReduceOp::kMean);
  wait_for_device(tensor);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The median over rounds whose number all ranks agree on.
double median_seconds(Accelerator& accelerator, at::Tensor& tensor) {
  seconds_of_all_reduce(accelerator, tensor);  // opens connections, allocates
  const double once = seconds_of_all_reduce(accelerator, tensor);
  const int rounds = accelerator.broadcast_object(
      std::clamp(static_cast<int>(kSecondsForEachSize / once), 3, kMostRounds));
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    seconds.push_back(seconds_of_all_reduce(accelerator, tensor));
  }
  std::nth_element(seconds.begin(), seconds.begin() + rounds / 2, seconds.end());
  return seconds[static_cast<size_t>(rounds / 2)];
}

Findings check_bandwidth(Accelerator& accelerator) {
  const int ranks = accelerator.num_processes();
  if (ranks == 1) throw Skipped("one process has no peer to exchange with");
  struct Size {
    const char* name;
    int64_t bytes;
  };
  constexpr Size kSizes[] = {{"64 KiB", 64 << 10}, {"1 MiB", 1 << 20}, {"16 MiB", 16 << 20}};
  Findings findings;
  for (const Size& size : kSizes) {
    const int64_t numel = size.bytes / static_cast<int64_t>(sizeof(float));
    at::Tensor tensor = torch::full({numel}, static_cast<float>(accelerator.process_index()),
                                    at::TensorOptions(accelerator.device()));
    const double seconds = median_seconds(accelerator, tensor);
    expect_near("mean of the numbers of the ranks", tensor.mean(), torch::tensor((ranks - 1) / 2.0),
                1e-4);
    // What each link carries: a reduction sends 2 (n-1)/n times its size on each rank.
    const double gigabytes_per_second =
        static_cast<double>(size.bytes) * 2 * (ranks - 1) / ranks / seconds / 1e9;
    char text[32];
    std::snprintf(text, sizeof text, "%s %.2f", size.name, gigabytes_per_second);
    findings.detail += (findings.detail.empty() ? "" : " · ") + std::string(text);
    findings.metrics.push_back(
        {"all_reduce_" + std::to_string(size.bytes) + "_bytes_gb_per_s", gigabytes_per_second});
  }
  findings.detail += " GB/s on each link";
  return findings;
}

}  // namespace

std::vector<Check> bandwidth_checks() {
  return {{"bandwidth", "all-reduce", plain_options(), check_bandwidth, true}};
}

}  // namespace accelerate::selftest
