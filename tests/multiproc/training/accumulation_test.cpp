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
