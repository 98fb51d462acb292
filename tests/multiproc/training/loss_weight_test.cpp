// Losses that count by a weight, in windows of accumulation and outside of them.
#include <algorithm>

#include "multiproc/accumulation.h"

namespace accelerate::test {
namespace {

// Losses are means over different numbers of tokens in each micro-batch and on each rank.
TEST_P(AccumulationOn, WeightedLossesEqualOneBatchOfAllTheirTokens) {
  run_ranks([](const Rank& rank) {
    for (const bool sync_each_batch : {false, true}) {
      for (const int64_t micro_batches : {3, 5}) {  // the last window is full, or short
        Accelerator accelerator(accumulating({.steps = 3, .sync_each_batch = sync_each_batch}));
        auto net = fresh_net();
        torch::optim::SGD sgd(net->parameters(), 0.1);
        const int64_t n = micro_batches * rank.world_size;
        auto [model, optimizer, loader] = accelerator.prepare(
            net, sgd,
            data_loader(TensorDataset(torch::arange(n), torch::arange(n)), {.batch_size = 1}));
        const auto tokens_of = [](int64_t sample) { return 1 + (sample * 5) % 7; };
        for (auto& batch : loader) {
          const auto micro_batch = accelerator.accumulate(model);
          const int64_t sample = batch.data.template item<int64_t>();
          const StepData tokens = data_of_step(static_cast<int>(sample), tokens_of(sample));
          accelerator.backward(loss_of(model(tokens.input), tokens.target),
                               {.weight = static_cast<double>(tokens_of(sample))});
          optimizer.step();
          optimizer.zero_grad();
        }
        auto expected = fresh_net();
        torch::optim::SGD plain(expected->parameters(), 0.1);
        for (int64_t first = 0; first < n; first += 3 * rank.world_size) {
          std::vector<at::Tensor> inputs, targets;
          for (int64_t i = first; i < std::min(n, first + 3 * rank.world_size); ++i) {
            const StepData tokens = data_of_step(static_cast<int>(i), tokens_of(i));
            inputs.push_back(tokens.input);
            targets.push_back(tokens.target);
          }
          plain.zero_grad();
          loss_of(expected->forward(torch::cat(inputs)), torch::cat(targets)).backward();
          plain.step();
        }
        EXPECT_TRUE(near(flat(net->parameters()), flat(expected->parameters())))
            << micro_batches << " micro-batches, sync_each_batch " << sync_each_batch;
      }
    }
  });
}

TEST_P(AccumulationOn, WeightedLossesOutsideOfWindowsAreEachTheirOwnBatch) {
  run_ranks([](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = fresh_net();
    auto expected = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    torch::optim::SGD plain(expected->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const auto tokens_of = [](int step, int of_rank) { return 2 + step + 3 * of_rank; };
    for (int step = 0; step < 3; ++step) {
      std::vector<at::Tensor> inputs, targets;
      for (int peer = 0; peer < rank.world_size; ++peer) {
        const StepData data = data_of_step(step * 2 + peer, tokens_of(step, peer));
        inputs.push_back(data.input);
        targets.push_back(data.target);
      }
      const auto own = static_cast<size_t>(rank.rank);
      optimizer.zero_grad();
      accelerator.backward(loss_of(model(inputs[own]), targets[own]),
                           {.weight = tokens_of(step, rank.rank)});
      optimizer.step();
      plain.zero_grad();
      loss_of(expected->forward(torch::cat(inputs)), torch::cat(targets)).backward();
      plain.step();
    }
    EXPECT_TRUE(near(flat(net->parameters()), flat(expected->parameters())));
    optimizer.zero_grad();
    const StepData data = data_of_step(9, 2);
    accelerator.backward(loss_of(model(data.input), data.target));  // now without
  });
}

}  // namespace
}  // namespace accelerate::test
