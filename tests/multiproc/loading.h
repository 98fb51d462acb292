// What the tests of loaders on real ranks start from.
#pragma once

#include <accelerate/accelerate.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/rank_device.h"
#include "support/ranks.h"

namespace accelerate::test {

// On the device of the tests, with timeouts that no test should run into by waiting.
inline Accelerator sharding_accelerator(const ShardingOptions& sharding = {}) {
  return Accelerator({.cpu = !tests_on_gpu(),
                      .data_loader = sharding,
                      .process_group = {.timeout = kUnreachedTimeout,
                                        .rendezvous_timeout = kUnreachedTimeout,
                                        .cuda_backend = test_cuda_backend()}});
}
inline Accelerator dispatching() { return sharding_accelerator({.dispatch_batches = true}); }

inline std::vector<int64_t> values(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.to(at::kCPU, at::kLong).contiguous().view(-1);
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

// Sample i is i.
struct Integers {
  int64_t n = 0;
  int64_t size() const { return n; }
  int64_t get(size_t index) const { return static_cast<int64_t>(index); }
};

template <class Loader>
std::vector<std::vector<int64_t>> batches_of(const Loader& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (const auto& batch : loader) batches.push_back(values(batch.data));
  return batches;
}

// The real samples of all ranks, round by round and in rank order. Collective.
template <class Loader>
std::vector<int64_t> real_samples(const Loader& loader, const Accelerator& accelerator) {
  std::vector<int64_t> all;
  for (const auto& batch : loader) {
    const at::Tensor real =
        batch.data.masked_select(batch.info().valid_mask().to(batch.data.device()));
    const auto round = values(torch::cat(accelerator.communicator().all_gather_ragged(real)));
    all.insert(all.end(), round.begin(), round.end());
  }
  return all;
}

inline std::vector<int64_t> integers_below(int64_t n) {
  std::vector<int64_t> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// What the error of type E says that `action` throws; "" and a failure if it throws none.
template <class E, class Action>
std::string thrown_by(Action action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no error";
  return {};
}

}  // namespace accelerate::test
