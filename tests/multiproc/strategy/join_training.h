// What the tests of uneven inputs share: data of each rank, and what training on it must come to.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "multiproc/training.h"

namespace accelerate::test {

inline constexpr double kJoinRate = 0.1;

// Batches that no other rank and no other step has. Rows may differ from batch to batch.
inline StepData batch_of(int rank, int step, int64_t rows = kRows) {
  return data_of_step(100 * (rank + 1) + step, rows);
}
inline int64_t uneven_rows(int rank, int step) { return 1 + (2 * rank + 3 * step) % 5; }

template <class Module = Mlp, class... Arguments>
std::shared_ptr<Module> seeded_net(Arguments... arguments) {
  torch::manual_seed(7);
  return std::make_shared<Module>(arguments...);
}

inline at::Tensor ones_times(double factor) { return ones({2, 6}) * factor; }

// Training by hand, in one process: in each step the gradients of the ranks that have data.
struct Expected {
  std::vector<std::vector<double>> gradients;  // of each step
  std::vector<double> parameters;              // in the end
};
template <class Rows>
Expected expected_training(const std::vector<int>& lengths, JoinDivisor divide_by, Rows rows_of,
                           const std::shared_ptr<Mlp>& net = seeded_net(),
                           double rate = kJoinRate) {
  Expected expected;
  const int steps = *std::max_element(lengths.begin(), lengths.end());
  for (int step = 0; step < steps; ++step) {
    std::vector<at::Tensor> sums;
    for (const at::Tensor& parameter : net->parameters()) {
      sums.push_back(torch::zeros_like(parameter, at::kDouble));
    }
    double divisor = 0;
    for (int rank = 0; rank < static_cast<int>(lengths.size()); ++rank) {
      const bool active = step < lengths[static_cast<size_t>(rank)];
      const int64_t rows = rows_of(rank, step);
      const double weight = divide_by == JoinDivisor::kSamples ? static_cast<double>(rows) : 1.0;
      if (active || divide_by == JoinDivisor::kAllRanks) divisor += weight;
      if (!active) continue;
      net->zero_grad();
      const StepData data = batch_of(rank, step, rows);
      loss_of(net->forward(data.input), data.target).backward();
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += weight * net->parameters()[i].grad();
    }
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] /= divisor;
      net->parameters()[i] -= rate * sums[i];
    }
    expected.gradients.push_back(flat(sums));
  }
  expected.parameters = flat(net->parameters());
  return expected;
}

// Whether all ranks hold the values of rank 0, bit by bit.
inline testing::AssertionResult same_on_all_ranks(Accelerator& accelerator,
                                                  const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor all = accelerator.gather(tensor.detach().reshape({1, -1}));
    for (int64_t rank = 1; rank < all.size(0); ++rank) {
      if (all[rank].equal(all[0])) continue;
      return testing::AssertionFailure()
             << "rank " << rank << " has " << all[rank] << "\nrank 0 has " << all[0];
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace accelerate::test
