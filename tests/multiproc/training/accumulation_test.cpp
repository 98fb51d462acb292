// Windows of gradient accumulation, on one and on two ranks: the same update as one big batch.
#include "multiproc/accumulation.h"

#include "multiproc/state_folder.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSteps = 4;

INSTANTIATE_TEST_SUITE_P(Ranks, AccumulationOn, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

TensorDataset rows(int64_t n) {
  const StepData data = host_data_of_step(0, n);
  return {data.input, data.target};
}

// One step of SGD for each [first, end) of rows, in plain libtorch.
std::vector<double> trained_on(const TensorDataset& data,
                               const std::vector<std::pair<int64_t, int64_t>>& batches) {
  auto net = fresh_net();
  torch::optim::SGD sgd(net->parameters(), 0.1);
  for (const auto& [first, end] : batches) {
    std::vector<at::Tensor> inputs, targets;
    for (int64_t i = first; i < end; ++i) {
      inputs.push_back(data.get(static_cast<size_t>(i)).data);
      targets.push_back(data.get(static_cast<size_t>(i)).target);
    }
    sgd.zero_grad();
    loss_of(net->forward(torch::stack(inputs).to(test_device())),
            torch::stack(targets).to(test_device()))
        .backward();
    sgd.step();
  }
  return flat(net->parameters());
}

// Trains `net` on a prepared loader, with windows.
template <class Loader>
void train(Accelerator& accelerator, const std::shared_ptr<Mlp>& net, const Loader& source,
           int epochs = 1) {
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer, loader] = accelerator.prepare(net, sgd, source);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (auto& batch : loader) {
      const auto micro_batch = accelerator.accumulate(model);
      accelerator.backward(loss_of(model(batch.data), batch.target));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
}

TEST_P(AccumulationOn, AWindowEqualsOneBigBatch) {
  run_ranks([](const Rank& rank) {
    Accelerator accelerator(accumulating({.steps = kSteps}));
    const int64_t window = 2 * kSteps * rank.world_size;
    const TensorDataset data = rows(2 * window);
    auto net = fresh_net();
    train(accelerator, net, data_loader(data, {.batch_size = 2}));
    EXPECT_TRUE(
        near(flat(net->parameters()), trained_on(data, {{0, window}, {window, 2 * window}})));
  });
}

// The reference divides the last window by 4 as well; here 6 micro-batches make windows of 4 and 2.
TEST_P(AccumulationOn, AShortLastWindowEqualsItsRealBatch) {
  run_ranks([](const Rank& rank) {
    const int64_t window = 2 * kSteps * rank.world_size;
    const int64_t all = window + window / 2;
    const TensorDataset data = rows(all);
    for (const bool sync_each_batch : {false, true}) {
      Accelerator accelerator(accumulating({.steps = kSteps, .sync_each_batch = sync_each_batch}));
      auto net = fresh_net();
      train(accelerator, net, data_loader(data, {.batch_size = 2}), 2);
      EXPECT_TRUE(near(flat(net->parameters()),
                       trained_on(data, {{0, window}, {window, all}, {0, window}, {window, all}})));
    }
  });
}

// Where a loop may call zero_grad(), and whose.
enum class ZeroGradAt { kBeforeAccumulate, kBeforeBackward, kAfterStep, kEverywhereButBeforeStep };
enum class ZeroGradOf { kOptimizer, kModel, kOwnModule, kOwnOptimizer, kConverted };

TEST_P(AccumulationOn, ZeroGradAnywhereInAWindowIsHarmless) {
  run_ranks([](const Rank& rank) {
    const int64_t window = 2 * kSteps * rank.world_size;
    const int64_t all = 2 * window + window / 2;  // the last one is short
    const TensorDataset data = rows(all);
    const auto expected = trained_on(data, {{0, window}, {window, 2 * window}, {2 * window, all}});
    for (const auto at : {ZeroGradAt::kBeforeAccumulate, ZeroGradAt::kBeforeBackward,
                          ZeroGradAt::kAfterStep, ZeroGradAt::kEverywhereButBeforeStep}) {
      for (const auto of : {ZeroGradOf::kOptimizer, ZeroGradOf::kModel, ZeroGradOf::kOwnModule,
                            ZeroGradOf::kOwnOptimizer, ZeroGradOf::kConverted}) {
        for (const bool set_to_none : {true, false}) {
          const bool prepared = of == ZeroGradOf::kOptimizer || of == ZeroGradOf::kModel;
          if (!prepared && !set_to_none) continue;  // refused
          Accelerator accelerator(accumulating({.steps = kSteps}));
          auto net = fresh_net();
          torch::optim::SGD sgd(net->parameters(), 0.1);
          auto [model, optimizer, loader] =
              accelerator.prepare(net, sgd, data_loader(data, {.batch_size = 2}));
          const auto zero_grad = [&, &model = model, &optimizer = optimizer](ZeroGradAt here) {
            if (at != here && at != ZeroGradAt::kEverywhereButBeforeStep) return;
            switch (of) {
              case ZeroGradOf::kOptimizer:
                return optimizer.zero_grad(set_to_none);
              case ZeroGradOf::kModel:
                return model->zero_grad(set_to_none);
              case ZeroGradOf::kOwnModule:
                return net->zero_grad(set_to_none);
              case ZeroGradOf::kOwnOptimizer:
                return sgd.zero_grad(set_to_none);
              case ZeroGradOf::kConverted:
                return static_cast<torch::optim::Optimizer&>(optimizer).zero_grad(set_to_none);
            }
          };
          for (auto& batch : loader) {
            zero_grad(ZeroGradAt::kBeforeAccumulate);
            const auto micro_batch = accelerator.accumulate(model);
            zero_grad(ZeroGradAt::kBeforeBackward);
            accelerator.backward(loss_of(model(batch.data), batch.target));
            optimizer.step();
            zero_grad(ZeroGradAt::kAfterStep);
          }
          EXPECT_TRUE(near(flat(net->parameters()), expected))
              << "at " << static_cast<int>(at) << " of " << static_cast<int>(of) << " set_to_none "
              << set_to_none;
        }
      }
    }
  });
}

// Two models that are trained in turn in every micro-batch, as in a GAN: the loss of the one comes
// between the micro-batches of the other.
TEST_P(AccumulationOn, ZeroGradOfOneModelLeavesTheWindowOfAnotherAlone) {
  run_ranks([](const Rank& rank) {
    const int64_t window = 2 * kSteps * rank.world_size;
    const TensorDataset data = rows(2 * window);
    const auto expected = trained_on(data, {{0, window}, {window, 2 * window}});
    for (const bool own : {false, true}) {
      Accelerator accelerator(accumulating({.steps = kSteps}));
      auto first_net = fresh_net();
      auto second_net = fresh_net();
      torch::optim::SGD first_sgd(first_net->parameters(), 0.1);
      torch::optim::SGD second_sgd(second_net->parameters(), 0.1);
      auto [first, second, first_optimizer, second_optimizer, loader] = accelerator.prepare(
          first_net, second_net, first_sgd, second_sgd, data_loader(data, {.batch_size = 2}));
      const auto train = [&](auto& net, auto& model, auto& optimizer, const auto& batch) {
        if (own) {
          net->zero_grad();
        } else {
          model->zero_grad();
        }
        accelerator.backward(loss_of(model(batch.data), batch.target));
        optimizer.step();
      };
      for (auto& batch : loader) {
        const auto micro_batch = accelerator.accumulate(first, second);
        train(first_net, first, first_optimizer, batch);
        train(second_net, second, second_optimizer, batch);
      }
      EXPECT_TRUE(near(flat(first_net->parameters()), expected)) << own;
      EXPECT_TRUE(near(flat(second_net->parameters()), expected)) << own;
    }
  });
}

// The update that a loop gives up, because its loss is not finite, say, leaves nothing behind.
TEST_P(AccumulationOn, ZeroGradInsteadOfAStepGivesTheUpdateUp) {
  run_ranks([](const Rank& rank) {
    const int64_t window = 2 * kSteps * rank.world_size;
    const TensorDataset data = rows(3 * window);
    Accelerator accelerator(accumulating({.steps = kSteps}));
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer, loader] =
        accelerator.prepare(net, sgd, data_loader(data, {.batch_size = 2}));
    int64_t micro_batches = 0;
    for (auto& batch : loader) {
      const auto micro_batch = accelerator.accumulate(model);
      accelerator.backward(loss_of(model(batch.data), batch.target));
      if (++micro_batches != 2 * kSteps) optimizer.step();
      optimizer.zero_grad();
    }
    EXPECT_TRUE(
        near(flat(net->parameters()), trained_on(data, {{0, window}, {2 * window, 3 * window}})));
  });
}

TEST_P(AccumulationOn, ZeroGradAfterAResumeInsideOfAWindowIsHarmless) {
  const StateFolder folder;
  run_ranks([&](const Rank& rank) {
    const int64_t window = 2 * kSteps * rank.world_size;
    const TensorDataset data = rows(window);
    for (const bool resumed : {false, true}) {
      Accelerator accelerator(accumulating({.steps = kSteps}));
      auto net = fresh_net();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer, loader] =
          accelerator.prepare(net, sgd, data_loader(data, {.batch_size = 2}));
      if (resumed) accelerator.load_state(folder / "state");
      int64_t micro_batches = 0;
      for (auto& batch : loader) {
        {
          const auto micro_batch = accelerator.accumulate(model);
          optimizer.zero_grad();
          net->zero_grad();
          accelerator.backward(loss_of(model(batch.data), batch.target));
          optimizer.step();
        }
        if (!resumed && ++micro_batches == 2) {
          net->zero_grad();
          accelerator.save_state(folder / "state");
        }
      }
      EXPECT_TRUE(near(flat(net->parameters()), trained_on(data, {{0, window}}))) << resumed;
    }
  });
}

TEST_P(AccumulationOn, AShortLastWindowOfAStreamOfUnknownLengthEqualsItsRealBatch) {
  run_ranks([](const Rank& rank) {
    Accelerator accelerator(accumulating({.steps = kSteps}));
    const int64_t window = 2 * kSteps * rank.world_size;
    const int64_t all = window + 2 * rank.world_size;
    const TensorDataset data = rows(all);
    auto open = [data, all] {
      return [data, all, next = int64_t{0}]() mutable -> std::optional<Sample> {
        if (next == all) return std::nullopt;
        return data.get(static_cast<size_t>(next++));
      };
    };
    auto net = fresh_net();
    train(accelerator, net, data_loader(stream(open), {.batch_size = 2}));
    EXPECT_TRUE(near(flat(net->parameters()), trained_on(data, {{0, window}, {window, all}})));
  });
}

TEST_P(AccumulationOn, WindowsRunOnIntoTheNextPassWhereTheyDoNotEndWithTheLoader) {
  run_ranks([](const Rank& rank) {
    Accelerator accelerator(accumulating({.steps = 2, .sync_with_dataloader = false}));
    const int64_t each = 2 * rank.world_size;
    const TensorDataset data = rows(3 * each);
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer, loader] =
        accelerator.prepare(net, sgd, data_loader(data, {.batch_size = 2}));
    std::vector<bool> syncs;
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (auto& batch : loader) {
        const auto micro_batch = accelerator.accumulate(model);
        syncs.push_back(accelerator.sync_gradients());
        accelerator.backward(loss_of(model(batch.data), batch.target));
        optimizer.step();
        optimizer.zero_grad();
      }
    }
    EXPECT_THAT(syncs, ElementsAre(false, true, false, true, false, true));
    // Windows of batches (0 1) (2 0) (1 2) of three.
    const auto doubled = [&] {
      std::vector<at::Tensor> inputs, targets;
      for (int64_t i = 0; i < 6 * each; ++i) {
        inputs.push_back(data.get(static_cast<size_t>(i % (3 * each))).data);
        targets.push_back(data.get(static_cast<size_t>(i % (3 * each))).target);
      }
      return TensorDataset(torch::stack(inputs), torch::stack(targets));
    }();
    EXPECT_TRUE(
        near(flat(net->parameters()),
             trained_on(doubled, {{0, 2 * each}, {2 * each, 4 * each}, {4 * each, 6 * each}})));
  });
}

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

TEST_P(AccumulationOn, OptimizerAndSchedulerDoNothingInsideAWindow) {
  run_ranks([](const Rank&) {
    AcceleratorOptions options = accumulating({.steps = 2});
    options.scheduler.pace = SchedulerPace::kPerOptimizerStep;
    Accelerator accelerator(options);
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 1.0);
    auto [model, optimizer, scheduler] = accelerator.prepare(
        net, sgd, Scheduler(sgd, lambda_lr([](int64_t step) { return 1.0 / (1.0 + step); })));
    const StepData data = data_of_step(0, 4);
    const auto before = flat(net->parameters());
    const auto micro_step = [&, &model = model, &optimizer = optimizer, &scheduler = scheduler] {
      const auto micro_batch = accelerator.accumulate(model);
      accelerator.backward(loss_of(model(data.input), data.target));
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
    };
    micro_step();
    EXPECT_FALSE(accelerator.sync_gradients());
    EXPECT_EQ(flat(net->parameters()), before);
    EXPECT_FALSE(flat(gradients(net->parameters())).empty());
    EXPECT_THAT(scheduler.last_lr(), ElementsAre(1.0));
    micro_step();
    EXPECT_TRUE(accelerator.sync_gradients());
    EXPECT_NE(flat(net->parameters()), before);
    EXPECT_TRUE(flat(gradients(net->parameters())).empty());
    EXPECT_THAT(scheduler.last_lr(), ElementsAre(0.5));
  });
}

// All gradients as each rank has them at the moment. Collective.
std::vector<std::vector<double>> gradients_by_rank(Accelerator& accelerator,
                                                   const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& gradient : gradients(parameters)) pieces.push_back(gradient.flatten());
  const at::Tensor all = accelerator.gather(torch::cat(pieces).unsqueeze(0));
  std::vector<std::vector<double>> result;
  for (int64_t rank = 0; rank < all.size(0); ++rank) result.push_back(flat({all[rank]}));
  return result;
}

TEST_F(Ranks, NothingIsSentInsideAWindowUnlessEveryBatchIsSynchronised) {
  run(2, [](const Rank& rank) {
    for (const bool sync_each_batch : {false, true}) {
      Accelerator accelerator(accumulating({.steps = 2, .sync_each_batch = sync_each_batch}));
      auto net = fresh_net();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      for (int step = 0; step < 2; ++step) {
        const auto micro_batch = accelerator.accumulate(model);
        const StepData data = data_of_step(step, 2 * kRows);
        accelerator.backward(
            loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank)));
        const auto seen = gradients_by_rank(accelerator, net->parameters());
        const bool averaged = step == 1 || sync_each_batch;
        EXPECT_EQ(seen[0] == seen[1], averaged) << "step " << step;
        optimizer.step();
        optimizer.zero_grad();
      }
    }
  });
}

TEST_F(Ranks, TriggerSyncAveragesInsideNoSync) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = fresh_net();
    auto model = accelerator.prepare(net);
    const StepData data = data_of_step(0, 2 * kRows);
    const auto pass = [&] {
      accelerator.backward(
          loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank)));
    };
    {
      const auto guard = accelerator.no_sync(model);
      pass();
      const auto before = gradients_by_rank(accelerator, net->parameters());
      EXPECT_NE(before[0], before[1]);
      accelerator.trigger_sync_in_backward(model);
      pass();
      const auto after = gradients_by_rank(accelerator, net->parameters());
      EXPECT_EQ(after[0], after[1]);
      pass();  // that was for one pass
      const auto later = gradients_by_rank(accelerator, net->parameters());
      EXPECT_NE(later[0], later[1]);
    }
    EXPECT_EQ(model.strategy()->gradient_sync(), GradientSync::kOn);
  });
}

TEST_P(AccumulationOn, AnEvaluationLoopInsideDoesNotDisturbTheWindow) {
  run_ranks([](const Rank& rank) {
    Accelerator accelerator(accumulating({.steps = 2}));
    const int64_t each = 2 * rank.world_size;
    const TensorDataset data = rows(3 * each);
    auto net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer, loader, evaluation] =
        accelerator.prepare(net, sgd, data_loader(data, {.batch_size = 2}),
                            data_loader(rows(rank.world_size), {.batch_size = 1}));
    std::vector<bool> syncs;
    for (auto& batch : loader) {
      {
        const torch::NoGradGuard no_grad;
        for (auto& seen : evaluation) {
          EXPECT_TRUE(seen.info().is_last);
          std::ignore = model(seen.data);
        }
      }
      const auto micro_batch = accelerator.accumulate(model);
      syncs.push_back(accelerator.sync_gradients());
      accelerator.backward(loss_of(model(batch.data), batch.target));
      {
        const torch::NoGradGuard no_grad;
        for (auto& seen : evaluation) std::ignore = model(seen.data);
      }
      optimizer.step();
      optimizer.zero_grad();
    }
    EXPECT_THAT(syncs, ElementsAre(false, true, true));
    EXPECT_TRUE(
        near(flat(net->parameters()), trained_on(data, {{0, 2 * each}, {2 * each, 3 * each}})));
  });
}

// The second model is not always named: it then averages in each micro-batch, with the same result.
TEST_P(AccumulationOn, TwoModelsWithTheirOwnLossesShareAWindow) {
  run_ranks([](const Rank& rank) {
    for (const bool both_named : {true, false}) {
      Accelerator accelerator(accumulating({.steps = 3}));
      const int64_t each = 2 * rank.world_size;
      const TensorDataset data = rows(5 * each);
      auto first_net = fresh_net();
      auto second_net = fresh_net();
      torch::optim::SGD first_sgd(first_net->parameters(), 0.1);
      torch::optim::SGD second_sgd(second_net->parameters(), 0.1);
      auto [first, second, first_optimizer, second_optimizer, loader] = accelerator.prepare(
          first_net, second_net, first_sgd, second_sgd, data_loader(data, {.batch_size = 2}));
      const auto micro_step = [&, &first = first, &second = second,
                               &first_optimizer = first_optimizer,
                               &second_optimizer = second_optimizer](const auto& batch) {
        accelerator.backward(loss_of(first(batch.data), batch.target));
        accelerator.backward(loss_of(second(batch.data), batch.target));
        for (auto* optimizer : {&first_optimizer, &second_optimizer}) {
          optimizer->step();
          optimizer->zero_grad();
        }
      };
      for (auto& batch : loader) {
        if (both_named) {
          const auto micro_batch = accelerator.accumulate(first, second);
          micro_step(batch);
        } else {
          const auto micro_batch = accelerator.accumulate(first);
          micro_step(batch);
        }
      }
      const auto expected = trained_on(data, {{0, 3 * each}, {3 * each, 5 * each}});
      EXPECT_TRUE(near(flat(first_net->parameters()), expected));
      EXPECT_TRUE(near(flat(second_net->parameters()), expected));
    }
  });
}

}  // namespace
}  // namespace accelerate::test
