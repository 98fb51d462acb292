// What a replicated model does with parameters, gradients and buffers.
#include "multiproc/prepared_mlp.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Ddp : Ranks {};

// What `step` gives as gradients of `net` on one process for the rows of `rank`.
std::vector<at::Tensor> gradient_alone(const std::shared_ptr<Mlp>& net, const StepData& data,
                                       int rank) {
  const at::Tensor loss =
      loss_of(net->forward(rows_of(data.input, rank)), rows_of(data.target, rank));
  return torch::autograd::grad({loss}, net->parameters());
}

std::vector<at::Tensor> mean_gradient_alone(const std::shared_ptr<Mlp>& net, const StepData& data,
                                            int world_size) {
  std::vector<at::Tensor> mean;
  for (int rank = 0; rank < world_size; ++rank) {
    const auto one = gradient_alone(net, data, rank);
    for (size_t i = 0; i < one.size(); ++i) {
      if (rank == 0) mean.push_back(torch::zeros_like(one[i]));
      mean[i] += one[i] / world_size;
    }
  }
  return mean;
}

void add_mean_gradient(std::vector<double>& sum, const std::shared_ptr<Mlp>& net,
                       const StepData& data, int world_size) {
  const auto mean = flat(mean_gradient_alone(net, data, world_size));
  sum.resize(mean.size());
  for (size_t i = 0; i < mean.size(); ++i) sum[i] += mean[i];
}

StepData own_rows(const StepData& data, int rank) {
  return {rows_of(data.input, rank), rows_of(data.target, rank)};
}

TEST_F(Ddp, ParametersAndBuffersStartAsThoseOfRankZero) {
  const auto values = run_collect(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    torch::manual_seed(rank.rank);
    torch::nn::Sequential net(torch::nn::Linear(6, 4), torch::nn::BatchNorm1d(4));
    net[1]->as<torch::nn::BatchNorm1d>()->running_mean.fill_(rank.rank + 5);
    net[1]->as<torch::nn::BatchNorm1d>()->num_batches_tracked.fill_(rank.rank + 9);
    const auto before = flat(net->parameters());
    auto model = accelerator.prepare(net);
    if (rank.rank == 0) {
      EXPECT_EQ(flat(net->parameters()), before);
    }
    auto all = flat(net->parameters());
    const auto buffers = flat(net->buffers());
    EXPECT_EQ(buffers.front(), 5.0);
    EXPECT_EQ(buffers.back(), 9.0);
    all.insert(all.end(), buffers.begin(), buffers.end());
    return all;
  });
  EXPECT_EQ(values.at(1), values.at(0));
  EXPECT_EQ(values.at(2), values.at(0));
}

TEST_F(Ddp, DifferentModelsAreRefusedOnAllRanksWithTheFirstDifference) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    const bool odd = rank.rank == 2;
    const auto refusal_of = [&](auto net) {
      return usage_error([&] { (void)accelerator.prepare(net); });
    };
    const auto all_say = [](const std::string& name) {
      return AllOf(HasSubstr(name), HasSubstr("rank 2"), HasSubstr("rank 0"));
    };
    EXPECT_THAT(refusal_of(std::make_shared<Mlp>(odd ? 9 : 8)), all_say("first.weight"));

    torch::nn::Sequential count(torch::nn::Linear(2, 2));
    if (odd) count->push_back(torch::nn::Linear(2, 2));
    EXPECT_THAT(refusal_of(count), all_say("1.weight"));

    torch::nn::Sequential name;
    name->push_back(odd ? "other" : "one", torch::nn::Linear(2, 2));
    EXPECT_THAT(refusal_of(name), all_say("other.weight"));

    auto dtype = std::make_shared<Mlp>();
    if (odd) dtype->second->to(at::kDouble);
    EXPECT_THAT(refusal_of(dtype), all_say("second.weight"));

    auto frozen = std::make_shared<Mlp>();
    if (odd) frozen->second->bias.requires_grad_(false);
    EXPECT_THAT(refusal_of(frozen), all_say("second.bias"));

    // The accelerator is still good for a model that is the same everywhere.
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    accelerator.backward(model(ones({1, 6})).sum());
  });
}

TEST_F(Ddp, GradientsAreTheMeanOverTheRanks) {
  run(3, [](const Rank& rank) {
    PreparedMlp mlp;
    const StepData data = data_of_step(0, kRows * rank.world_size);
    const auto expected = flat(mean_gradient_alone(mlp.net, data, rank.world_size));
    mlp.backward(own_rows(data, rank.rank));
    EXPECT_TRUE(near(flat(gradients(mlp.net->parameters())), expected));
  });
}

TEST_F(Ddp, TwoBackwardPassesBeforeAStepAddUp) {
  run(2, [](const Rank& rank) {
    PreparedMlp mlp;
    std::vector<double> expected;
    for (int step = 0; step < 2; ++step) {
      const StepData data = data_of_step(step, kRows * rank.world_size);
      add_mean_gradient(expected, mlp.net, data, rank.world_size);
      mlp.backward(own_rows(data, rank.rank));
    }
    EXPECT_TRUE(near(flat(gradients(mlp.net->parameters())), expected));
  });
}

TEST_F(Ddp, OneBackwardPassOverTwoForwardPassesIsAveragedOnce) {
  run(2, [](const Rank& rank) {
    PreparedMlp mlp;
    std::vector<double> expected;
    at::Tensor loss = torch::zeros({}, test_device());
    for (int step = 0; step < 2; ++step) {
      const StepData data = data_of_step(step, kRows * rank.world_size);
      add_mean_gradient(expected, mlp.net, data, rank.world_size);
      loss = loss + mlp.loss(own_rows(data, rank.rank));
    }
    mlp.accelerator.backward(loss);
    EXPECT_TRUE(near(flat(gradients(mlp.net->parameters())), expected));
  });
}

TEST_F(Ddp, NoSyncKeepsGradientsOnTheirRankUntilTheNextPassBringsAllTogether) {
  run(2, [](const Rank& rank) {
    PreparedMlp mlp;
    const StepData first = data_of_step(0, kRows * 2);
    const StepData second = data_of_step(1, kRows * 2);
    const auto pass = [&](const StepData& data) { mlp.backward(own_rows(data, rank.rank)); };
    const auto own = flat(gradient_alone(mlp.net, first, rank.rank));
    const auto other = flat(gradient_alone(mlp.net, first, 1 - rank.rank));
    const auto mean = flat(mean_gradient_alone(mlp.net, second, 2));
    {
      auto scope = mlp.accelerator.no_sync(mlp.model);
      pass(first);
    }
    EXPECT_TRUE(near(flat(gradients(mlp.net->parameters())), own));
    EXPECT_FALSE(near(flat(gradients(mlp.net->parameters())), other));
    pass(second);
    std::vector<double> expected(mean.size());
    for (size_t i = 0; i < mean.size(); ++i) expected[i] = mean[i] + (own[i] + other[i]) / 2;
    EXPECT_TRUE(near(flat(gradients(mlp.net->parameters())), expected));
  });
}

TEST_F(Ddp, AParameterThatSomeRanksDoNotUseCountsAsZeroThere) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu({.find_unused_parameters = true}));
    auto net = std::make_shared<Branches>();
    auto model = accelerator.prepare(net);
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      // Everybody uses a, rank 1 also b, nobody c; the gradient of a bias is the sum of ones.
      accelerator.backward(model(ones({4, 6}), rank.rank == 1 ? "ab" : "a").sum());
      EXPECT_EQ(flat({net->a->bias.grad()}), std::vector<double>(3, 4.0));
      EXPECT_EQ(flat({net->b->bias.grad()}), std::vector<double>(3, 2.0));
      EXPECT_FALSE(net->c->bias.grad().defined());
    }
  });
}

TEST_F(Ddp, AParameterThatNobodyUsesIsAnErrorThatNamesItUnlessExpected) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Branches>();
    auto model = accelerator.prepare(net);
    try {
      accelerator.backward(model(ones({4, 6}), "ab").sum());
      ADD_FAILURE() << "no error";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("c.weight"), HasSubstr("c.bias"),
                        HasSubstr("find_unused_parameters"), testing::Not(HasSubstr("a.weight"))));
      EXPECT_EQ(error.rank(), rank.rank);
    }
  });
}

TEST_F(Ddp, AParameterThatOneRankDoesNotUseIsAnErrorAndNoHang) {
  spawn(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Branches>();
    auto model = accelerator.prepare(net);
    for (int step = 0; step < 2; ++step) {
      accelerator.backward(model(ones({4, 6}), rank.rank == 1 ? "ab" : "abc").sum());
    }
  });
  EXPECT_EQ(exit_code_of(1), kExitUsageError);
  EXPECT_THAT(error_of(1), HasSubstr("c.weight"));
  EXPECT_EQ(exit_code_of(0), kExitCommError);
  EXPECT_THAT(error_of(0), HasSubstr("rank 1"));
}

TEST_F(Ddp, AStaticGraphFindsItsUnusedParametersOnce) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu({.static_graph = true}));
    auto net = std::make_shared<Branches>();
    auto model = accelerator.prepare(net);
    for (int step = 0; step < 4; ++step) {
      model.zero_grad();
      accelerator.backward(model(ones({4, 6}), "ac").sum());
      EXPECT_EQ(flat({net->a->bias.grad()}), std::vector<double>(3, 4.0));
      EXPECT_EQ(flat({net->c->bias.grad()}), std::vector<double>(3, 4.0));
    }
  });
}

TEST_F(Ddp, FrozenParametersAreNotReducedAndStay) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    torch::manual_seed(rank.rank);
    auto net = std::make_shared<Mlp>();
    for (at::Tensor& parameter : net->first->parameters()) parameter.requires_grad_(false);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const auto frozen = flat(net->first->parameters());
    const auto trained = flat(net->second->parameters());
    accelerator.backward(model(ones({2, 6}) * (rank.rank + 1)).sum());
    optimizer.step();
    EXPECT_FALSE(net->first->weight.grad().defined());
    EXPECT_EQ(flat(net->first->parameters()), frozen);
    EXPECT_NE(flat(net->second->parameters()), trained);
  });
}

TEST_F(Ddp, AModelWithoutTrainableParametersStaysLocal) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    for (at::Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
    auto model = accelerator.prepare(net);
    if (rank.rank == 0) {  // nobody else has to call it
      EXPECT_EQ(model(ones({2, 6})).sizes(), (std::vector<int64_t>{2, 3}));
    }
    accelerator.wait_for_everyone();
  });
}

TEST_F(Ddp, RunningStatisticsAreThoseOfRankZero) {
  for (const bool broadcast : {true, false}) {
    const auto statistics = run_collect(2, [broadcast](const Rank& rank) {
      Accelerator accelerator(on_cpu({.broadcast_buffers = broadcast}));
      torch::nn::Sequential net(torch::nn::Linear(6, 4), torch::nn::BatchNorm1d(4),
                                torch::nn::Linear(4, 3));
      auto model = accelerator.prepare(net);
      for (int step = 0; step < 3; ++step) {
        const StepData data = data_of_step(step, kRows * 2);
        accelerator.backward(loss_of(model->forward(rows_of(data.input, rank.rank)),
                                     rows_of(data.target, rank.rank)));
      }
      model.eval();
      torch::NoGradGuard no_grad;
      (void)model(ones({1, 6}));
      return flat(net->buffers());
    });
    EXPECT_EQ(statistics.at(0) == statistics.at(1), broadcast);
  }
}

TEST_F(Ddp, TwoModelsTrainInTurnLikeOneProcess) {
  // A generator and a discriminator; the second loss runs through both.
  const auto train = [](auto&& prepare, auto&& backward, int64_t row0, int64_t rows) {
    torch::manual_seed(3);
    auto generator = std::make_shared<Mlp>();
    auto judge = on_test_device(torch::nn::Linear(3, 1));
    torch::optim::SGD generator_sgd(generator->parameters(), 0.1);
    torch::optim::SGD judge_sgd(judge->parameters(), 0.1);
    prepare(generator, judge, generator_sgd, judge_sgd, [&](auto& g, auto& d, auto& og, auto& od) {
      for (int step = 0; step < 3; ++step) {
        const StepData data = data_of_step(step, kRows * 2);
        const at::Tensor noise = data.input.narrow(0, row0, rows);
        const at::Tensor real = data.target.narrow(0, row0, rows);
        od.zero_grad();
        backward((d(g(noise).detach()) - d(real)).mean());
        od.step();
        og.zero_grad();
        od.zero_grad();
        backward(-d(torch::tanh(g(noise))).mean());
        og.step();
      }
    });
    auto all = flat(generator->parameters());
    const auto more = flat(judge->parameters());
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto alone = run_collect(1, [&](const Rank&) {
    return train(
        [](auto& g, auto& d, auto& og, auto& od, auto loop) {
          auto forward = [&](const at::Tensor& x) { return g->forward(x); };
          loop(forward, d, og, od);
        },
        [](const at::Tensor& loss) { loss.backward(); }, 0, kRows * 2);
  });
  const auto ranks = run_collect(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    return train(
        [&](auto& g, auto& d, auto& og, auto& od, auto loop) {
          auto [pg, pd, pog, pod] = accelerator.prepare(g, d, og, od);
          loop(pg, pd, pog, pod);
        },
        [&](const at::Tensor& loss) { accelerator.backward(loss); }, rank.rank * kRows, kRows);
  });
  EXPECT_TRUE(near(ranks.at(0), alone.at(0)));
  EXPECT_EQ(ranks.at(1), ranks.at(0));
}

TEST_F(Ddp, StepAfterAPlainBackwardIsRefused) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    accelerator.backward(model(ones({2, 6})).sum());
    optimizer.step();
    optimizer.zero_grad();
    model(ones({2, 6}) * (rank.rank + 1)).sum().backward();
    const auto before = flat(net->parameters());
    EXPECT_THAT(usage_error([&] { optimizer.step(); }), HasSubstr("backward"));
    EXPECT_EQ(flat(net->parameters()), before);
  });
}

TEST_F(Ddp, OneProcessMayCallBackwardItself) {
  run(1, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const auto before = flat(net->parameters());
    model(ones({2, 6})).sum().backward();
    optimizer.step();
    EXPECT_NE(flat(net->parameters()), before);
  });
}

TEST_F(Ddp, EvaluationBetweenTrainingStepsChangesNothing) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    torch::manual_seed(1);
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    for (int step = 0; step < 3; ++step) {
      {
        torch::NoGradGuard no_grad;
        for (int i = 0; i <= rank.rank; ++i) (void)model(ones({2, 6}));
      }
      const StepData data = data_of_step(step, kRows * 2);
      const auto expected = flat(mean_gradient_alone(net, data, 2));
      optimizer.zero_grad();
      accelerator.backward(
          loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank)));
      EXPECT_TRUE(near(flat(gradients(net->parameters())), expected));
      optimizer.step();
    }
  });
}

}  // namespace
}  // namespace accelerate::test
