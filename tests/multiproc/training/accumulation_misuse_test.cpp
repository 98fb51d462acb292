// What gradient accumulation refuses, and where its windows end apart from the loop.
#include <accelerate/local_sgd.h>

#include "multiproc/accumulation.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct AccumulationMisuseOn : AccumulationOn {};
INSTANTIATE_TEST_SUITE_P(Ranks, AccumulationMisuseOn, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(AccumulationMisuseOn, StepsComeFromTheEnvironmentUnlessTheyAreGiven) {
  run_ranks(
      [](const Rank&) {
        EXPECT_EQ(Accelerator(on_cpu()).gradient_accumulation_steps(), 3);
        EXPECT_EQ(Accelerator(accumulating({.steps = 2})).gradient_accumulation_steps(), 2);
      },
      {.environment = {{"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "3"}}});
  run_ranks(
      [](const Rank&) {
        try {
          const Accelerator accelerator(on_cpu());
          ADD_FAILURE() << "expected a ConfigError";
        } catch (const ConfigError& error) {
          EXPECT_THAT(error.what(), HasSubstr("ACCELERATE_GRADIENT_ACCUMULATION_STEPS"));
        }
      },
      {.environment = {{"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "many"}}});
}

TEST_P(AccumulationMisuseOn, RefusesWindowsWithoutSteps) {
  run_ranks([](const Rank&) {
    for (const int64_t steps : {0, -2}) {
      EXPECT_THAT(usage_error([&] { Accelerator accelerator(accumulating({.steps = steps})); }),
                  HasSubstr("at least 1 step"));
    }
  });
}

TEST_P(AccumulationMisuseOn, RefusesASecondWeightedLossInAMicroBatch) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(accumulating({.steps = 2}));
    auto model = accelerator.prepare(fresh_net());
    const StepData data = data_of_step(0, 2);
    for (int step = 0; step < 2; ++step) {
      const auto micro_batch = accelerator.accumulate(model);
      accelerator.backward(loss_of(model(data.input), data.target), {.weight = 2});
      const auto loss = loss_of(model(data.input), data.target);
      EXPECT_THAT(usage_error([&] { accelerator.backward(loss, {.weight = 2}); }),
                  HasSubstr("a second loss"));
    }
  });
}

TEST_P(AccumulationMisuseOn, RefusesLossesWithAndWithoutWeightInOneWindow) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(accumulating({.steps = 2}));
    auto model = accelerator.prepare(fresh_net());
    const StepData data = data_of_step(0, 2);
    {
      const auto micro_batch = accelerator.accumulate(model);
      accelerator.backward(loss_of(model(data.input), data.target), {.weight = 2});
    }
    const auto micro_batch = accelerator.accumulate(model);
    const auto loss = loss_of(model(data.input), data.target);
    EXPECT_THAT(usage_error([&] { accelerator.backward(loss); }), HasSubstr("without a weight"));
    EXPECT_THAT(usage_error([&] { accelerator.backward(loss, {.weight = -1}); }),
                HasSubstr("0 or more"));
  });
}

TEST_P(AccumulationMisuseOn, AWeightThatIsNoGoodAtTheEndOfAWindowIsRefusedOnAllRanks) {
  run_ranks([](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(fresh_net());
    const StepData data = data_of_step(0, 2);
    const double weight = rank.rank == 0 ? std::nan("") : 2;
    const auto loss = loss_of(model(data.input), data.target);
    EXPECT_THAT(usage_error([&] { accelerator.backward(loss, {.weight = weight}); }),
                HasSubstr(rank.rank == 0 ? "this rank" : "another rank"));
  });
}

TEST_P(AccumulationMisuseOn, RefusesALossOutsideOfAccumulate) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(accumulating({.steps = 2}));
    auto model = accelerator.prepare(fresh_net());
    const StepData data = data_of_step(0, 2);
    const auto loss = loss_of(model(data.input), data.target);
    EXPECT_THAT(usage_error([&] { accelerator.backward(loss); }),
                AllOf(HasSubstr("over 2 micro-batches"), HasSubstr("accumulate(model)")));
  });
}

TEST_P(AccumulationMisuseOn, RefusesOneMicroBatchInsideAnother) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(accumulating({.steps = 2}));
    auto [model, other] = accelerator.prepare(fresh_net(), fresh_net());
    {
      const auto micro_batch = accelerator.accumulate(model);
      EXPECT_THAT(
          usage_error([&, &other = other] { const auto inner = accelerator.accumulate(other); }),
          HasSubstr("name all models in one accumulate()"));
      EXPECT_FALSE(accelerator.sync_gradients());
    }
    const auto micro_batch = accelerator.accumulate(model, other);
    EXPECT_TRUE(accelerator.sync_gradients());
  });
}

// One counter would end the window of the second model with every second micro-batch of the first.
TEST_P(AccumulationMisuseOn, RefusesWindowsOfTwoModelsThatTakeTurns) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(accumulating({.steps = 2}));
    auto [critic, generator] = accelerator.prepare(fresh_net(), fresh_net());
    { const auto micro_batch = accelerator.accumulate(critic); }
    EXPECT_THAT(usage_error([&, &generator = generator] {
                  const auto micro_batch = accelerator.accumulate(generator);
                }),
                AllOf(HasSubstr("in the open window of another"), HasSubstr("at   accumulate"),
                      HasSubstr("name all of them in one accumulate(generator, critic)")));
    { const auto micro_batch = accelerator.accumulate(critic); }  // the window itself goes on
    EXPECT_TRUE(accelerator.sync_gradients());
    for (int i = 0; i < 2; ++i) const auto micro_batch = accelerator.accumulate(generator);
    EXPECT_TRUE(accelerator.sync_gradients());
  });
}

TEST_P(AccumulationMisuseOn, AWindowIsThatOfAllModelsThatItHasNamed) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(accumulating({.steps = 4}));
    auto [critic, generator, other] = accelerator.prepare(fresh_net(), fresh_net(), fresh_net());
    { const auto micro_batch = accelerator.accumulate(critic); }
    { const auto micro_batch = accelerator.accumulate(critic, generator); }
    { const auto micro_batch = accelerator.accumulate(generator); }
    EXPECT_THAT(usage_error([&, &other = other] {
                  const auto micro_batch = accelerator.accumulate(other);
                }),
                HasSubstr("in the open window of another"));
    { const auto micro_batch = accelerator.accumulate(generator); }
    EXPECT_TRUE(accelerator.sync_gradients());
    { const auto micro_batch = accelerator.accumulate(); }
    const auto micro_batch = accelerator.accumulate(other);
    EXPECT_FALSE(accelerator.sync_gradients());
  });
}

TEST_P(AccumulationMisuseOn, RefusesGradientsThatWereSetToZeroBehindTheWindow) {
  run_ranks([](const Rank&) {
    PreparedMlp mlp(accumulating({.steps = 3}));
    const StepData data = data_of_step(0, 2);
    const auto backward = [&] { mlp.backward(data); };
    {
      const auto micro_batch = mlp.accelerator.accumulate(mlp.model);
      mlp.net->zero_grad(/*set_to_none=*/false);  // nothing to lose yet
      backward();
    }
    {
      const auto micro_batch = mlp.accelerator.accumulate(mlp.model);
      mlp.net->first->bias.mutable_grad().zero_();  // a parameter that is not to be trained
      backward();
      mlp.net->zero_grad(/*set_to_none=*/false);
      EXPECT_THAT(usage_error(backward), AllOf(HasSubstr("[rank "), HasSubstr("set to zero"),
                                               HasSubstr("what prepare() returned")));
    }
    EXPECT_THAT(
        usage_error([&] { const auto micro_batch = mlp.accelerator.accumulate(mlp.model); }),
        HasSubstr("set to zero"));
  });
}

// A loss that was meant for another model has reached this one in the micro-batch that ends the
// window; to throw its gradients away takes those of the earlier micro-batches with them.
TEST_P(AccumulationMisuseOn, RefusesALossAfterTheGradientsOfAWholeWindowWereThrownAway) {
  run_ranks([](const Rank&) {
    PreparedMlp mlp(accumulating({.steps = 2}));
    const StepData data = data_of_step(0, 2);
    const auto backward = [&] { mlp.backward(data); };
    {
      const auto micro_batch = mlp.accelerator.accumulate(mlp.model);
      backward();
    }
    {
      const auto micro_batch = mlp.accelerator.accumulate(mlp.model);
      backward();
      mlp.optimizer.zero_grad();  // gives the update up
      EXPECT_THAT(usage_error(backward), HasSubstr("{.only = model}"));
      mlp.optimizer.zero_grad();
    }
    const auto micro_batch = mlp.accelerator.accumulate(mlp.model);
    backward();
  });
}

TEST_P(AccumulationMisuseOn, RefusesAnUpdateWhereTheLastMicroBatchHadNoLoss) {
  run_ranks([](const Rank&) {
    PreparedMlp mlp(accumulating({.steps = 2}));
    const StepData data = data_of_step(0, 2);
    {
      const auto micro_batch = mlp.accelerator.accumulate(mlp.model);
      mlp.backward(data);
    }
    const auto before = mlp.values();
    const auto micro_batch = mlp.accelerator.accumulate(mlp.model);
    EXPECT_THAT(usage_error([&] { mlp.optimizer.step(); }),
                AllOf(HasSubstr("[rank "), HasSubstr("before accumulate()")));
    EXPECT_EQ(mlp.values(), before);
  });
}

TEST_P(AccumulationMisuseOn, RefusesAnUpdateWhereTheLastMicroBatchHadALossOfAnotherModelOnly) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(accumulating({.steps = 2}));
    auto net = fresh_net();
    auto other_net = fresh_net();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    torch::optim::SGD other_sgd(other_net->parameters(), 0.1);
    auto [model, other, optimizer, other_optimizer] =
        accelerator.prepare(net, other_net, sgd, other_sgd);
    const StepData data = data_of_step(0, 2);
    {
      const auto micro_batch = accelerator.accumulate();
      accelerator.backward(loss_of(model(data.input), data.target));
      accelerator.backward(loss_of(other(data.input), data.target));
    }
    const auto micro_batch = accelerator.accumulate();
    accelerator.backward(loss_of(other(data.input), data.target));
    other_optimizer.step();
    EXPECT_THAT(usage_error([&, &optimizer = optimizer] { optimizer.step(); }),
                HasSubstr("before accumulate()"));
  });
}

TEST_P(AccumulationMisuseOn, RefusesAClosureWhereGradientsAccumulate) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(accumulating({.steps = 2}));
    auto net = fresh_net();
    torch::optim::LBFGS lbfgs(net->parameters());
    auto [model, optimizer] = accelerator.prepare(net, lbfgs);
    const auto micro_batch = accelerator.accumulate(model);
    EXPECT_THAT(usage_error([&, &optimizer = optimizer] {
                  optimizer.step([] { return torch::zeros({}); });
                }),
                HasSubstr("gradient_accumulation.steps to 1"));
  });
}

TEST_P(AccumulationMisuseOn, RefusesAModelOfAnotherAccelerator) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    Accelerator other(on_cpu());
    auto model = other.prepare(fresh_net());
    EXPECT_THAT(usage_error([&] { const auto micro_batch = accelerator.accumulate(model); }),
                HasSubstr("that prepare() returned"));
  });
}

TEST_P(AccumulationMisuseOn, FreeMemoryEndsAWindow) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(accumulating({.steps = 3}));
    auto net = fresh_net();
    const StepData data = data_of_step(0, 2);
    {
      auto model = accelerator.prepare(net);
      const auto micro_batch = accelerator.accumulate(model);
      accelerator.backward(loss_of(model(data.input), data.target), {.weight = 3});
    }
    accelerator.free_memory();
    EXPECT_TRUE(accelerator.sync_gradients());
    auto model = accelerator.prepare(net);
    for (int i = 1; i <= 3; ++i) {
      const auto micro_batch = accelerator.accumulate(model);
      accelerator.backward(loss_of(model(data.input), data.target));
      EXPECT_EQ(accelerator.sync_gradients(), i == 3);
    }
  });
}

// C++ modules list a parameter that two of them share twice.
struct TiedNetImpl : torch::nn::Module {
  TiedNetImpl()
      : layer(register_module("first", torch::nn::Linear(6, 6))),
        free(torch::full({}, 0.5, at::TensorOptions(test_device()).requires_grad(true))) {
    register_module("second", layer);
    to(test_device());
  }
  at::Tensor forward(const at::Tensor& input) { return layer(torch::tanh(layer(input))); }

  torch::nn::Linear layer;
  at::Tensor free;  // not of the module, but of the optimizer
};

TEST_P(AccumulationMisuseOn, TiedAndFreeParametersOfShortAndWeightedWindowsAreCorrectedOnce) {
  run_ranks([](const Rank& rank) {
    const auto fresh = [] {
      torch::manual_seed(3);
      return std::make_shared<TiedNetImpl>();
    };
    const auto loss_of_rows = [](TiedNetImpl& net, const at::Tensor& output,
                                 const at::Tensor& rows) {
      return ((output - rows) * net.free).square().mean();
    };
    for (const bool weighted : {false, true}) {
      Accelerator accelerator(accumulating({.steps = 4}));
      const int64_t n = 6 * rank.world_size;  // a window of 4 and one of 2
      const at::Tensor rows = host_data_of_step(0, n).input;
      auto net = fresh();
      ASSERT_EQ(net->parameters().size(), 4U);
      torch::optim::SGD sgd({net->layer->weight, net->layer->bias, net->free}, 0.1);
      auto [model, optimizer, loader] =
          accelerator.prepare(net, sgd, data_loader(TensorDataset(rows, rows), {.batch_size = 1}));
      for (auto& batch : loader) {
        const auto micro_batch = accelerator.accumulate(model);
        BackwardOptions options;
        if (weighted) options.weight = 5;
        const at::Tensor loss = loss_of_rows(*net, model(batch.data), batch.data);
        accelerator.backward(loss, options);
        if (accelerator.sync_gradients()) {  // that of the free one stays on its rank
          net->free.mutable_grad() = accelerator.reduce(net->free.grad(), ReduceOp::kMean);
        }
        optimizer.step();
        optimizer.zero_grad();
      }
      auto expected = fresh();
      torch::optim::SGD plain({expected->layer->weight, expected->layer->bias, expected->free},
                              0.1);
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 4}, {4, 6}}) {
        const at::Tensor big =
            rows.slice(0, begin * rank.world_size, end * rank.world_size).to(test_device());
        plain.zero_grad();
        loss_of_rows(*expected, expected->forward(big), big).backward();
        plain.step();
      }
      EXPECT_TRUE(near(flat({net->layer->weight, net->layer->bias, net->free}),
                       flat({expected->layer->weight, expected->layer->bias, expected->free})))
          << (weighted ? "weighted" : "plain");
    }
  });
}

TEST_F(Ranks, LocalSgdAroundWindowsKeepsGradientsOnTheirRank) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(accumulating({.steps = 2}));
    auto net = fresh_net();
    auto model = accelerator.prepare(net);
    LocalSgd local(accelerator.communicator(), model, {.local_sgd_steps = 8});
    for (int step = 0; step < 2; ++step) {
      const auto micro_batch = accelerator.accumulate(model);
      const StepData data = data_of_step(step, 2 * kRows);
      accelerator.backward(
          loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank)));
    }
    const at::Tensor own = net->second->bias.grad();
    const at::Tensor both = accelerator.gather(own.unsqueeze(0));
    EXPECT_FALSE(torch::equal(both[0], both[1]));
  });
}

TEST_F(Ranks, AWeightedLossCannotBeJoined) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(fresh_net());
    const StepData data = data_of_step(0, 2);
    EXPECT_THAT(usage_error([&] {
                  accelerator.join_uneven_inputs([&] {
                    accelerator.backward(loss_of(model(data.input), data.target), {.weight = 2});
                  });
                }),
                HasSubstr("JoinDivisor::kSamples"));
  });
}

}  // namespace
}  // namespace accelerate::test
