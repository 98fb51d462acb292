// Joining models of every kind: with buffers, with unused parameters, sparse ones, several at once.
#include "multiproc/strategy/join_training.h"

namespace accelerate::test {
namespace {

struct JoinModels : Ranks {};

TEST_F(JoinModels, BuffersAreThoseOfTheFirstRankThatStillHasData) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Counting>();
    auto model = accelerator.prepare(net);
    const std::vector<int> lengths{1, 2, 3};
    std::vector<double> seen;
    accelerator.join_uneven_inputs([&] {
      for (int step = 0; step < lengths[static_cast<size_t>(rank.rank)]; ++step) {
        accelerator.backward(model(ones_times(rank.rank + 1)).sum());
        seen.push_back(net->seen.item<double>());
      }
    });
    // Before each step the buffer of the first rank with data, to which each adds its own number:
    // 0, then rank 1's 2, then rank 2's 5.
    const std::vector<std::vector<double>> expected{{1}, {2, 4}, {3, 5, 8}};
    EXPECT_EQ(seen, expected[static_cast<size_t>(rank.rank)]);
    EXPECT_EQ(net->seen.item<double>(), 8);
  });
}

TEST_F(JoinModels, EvaluationInsideTheBodyIsAnswered) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Counting>();
    auto model = accelerator.prepare(net);
    accelerator.join_uneven_inputs([&] {
      for (int step = 0; step < 1 + 2 * rank.rank; ++step) {
        accelerator.backward(model(ones_times(rank.rank + 1)).sum());
        torch::NoGradGuard no_grad;
        model.eval();
        for (int pass = 0; pass <= step; ++pass) (void)model(ones_times(1));
        model.train();
      }
    });
    EXPECT_EQ(net->seen.item<double>(), 1 + 2 + 2);  // rank 0's, then rank 1 went on from there
    EXPECT_TRUE(same_on_all_ranks(accelerator, net->parameters()));
  });
}

TEST_F(JoinModels, BatchNormTrainsOnUnevenInputs) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    torch::nn::Sequential net(torch::nn::Linear(6, 4), torch::nn::BatchNorm1d(4),
                              torch::nn::Linear(4, 3));
    auto [model, optimizer] =
        accelerator.prepare(net, torch::optim::SGD(net->parameters(), kJoinRate));
    for (int epoch = 0; epoch < 2; ++epoch) {
      accelerator.join_uneven_inputs([&] {
        for (int step = 0; step < (rank.rank + epoch) % 3; ++step) {
          const StepData data = batch_of(rank.rank, step);
          optimizer.zero_grad();
          accelerator.backward(loss_of(model(data.input), data.target));
          optimizer.step();
        }
      });
      EXPECT_TRUE(same_on_all_ranks(accelerator, net->parameters()));
      EXPECT_TRUE(same_on_all_ranks(accelerator, net->buffers()));
    }
    EXPECT_EQ(model.named_buffers()["1.num_batches_tracked"].item<int64_t>(), 4);
  });
}

TEST_F(JoinModels, AParameterThatNobodyUsesIsLeftAlone) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu({.find_unused_parameters = true}));
    auto net = seeded_net<Branches>();
    auto model = accelerator.prepare(net);
    accelerator.join_uneven_inputs([&] {
      for (int step = 0; step < rank.rank; ++step) {
        net->zero_grad();
        const std::string used = step == 0 && rank.rank == 1 ? "ab" : "a";
        accelerator.backward(model(ones_times(rank.rank + 1), used).sum());
        const double mean = step == 0 ? 2.5 : 3.0;  // of the factors 2 and 3, then 3 alone
        EXPECT_TRUE(net->a->weight.grad().cpu().allclose(torch::full({3, 6}, 2 * mean)));
        EXPECT_FALSE(net->c->weight.grad().defined());
        if (step == 0) {
          EXPECT_TRUE(net->b->weight.grad().cpu().allclose(torch::full({3, 6}, 2.0)));  // 2 * 2 / 2
        } else {
          EXPECT_FALSE(net->b->weight.grad().defined());
        }
      }
    });
    accelerator.wait_for_everyone();
  });
}

// Rank 0 has never seen the graph, whose branch c is unused.
TEST_F(JoinModels, ARankWithoutDataLearnsTheStaticGraph) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu({.static_graph = true}));
    auto net = seeded_net<Branches>();
    auto model = accelerator.prepare(net);
    accelerator.join_uneven_inputs([&] {
      for (int step = 0; step < 3 * rank.rank; ++step) {
        net->zero_grad();
        accelerator.backward(model(ones_times(3), "ab").sum());
        EXPECT_TRUE(net->a->weight.grad().cpu().allclose(torch::full({3, 6}, 6.0)));
      }
    });
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      accelerator.backward(model(ones_times(rank.rank + 1), "ab").sum());
      EXPECT_TRUE(net->a->weight.grad().cpu().allclose(torch::full({3, 6}, 3.0)));
      EXPECT_TRUE(net->b->weight.grad().cpu().allclose(torch::full({3, 6}, 3.0)));
      EXPECT_FALSE(net->c->weight.grad().defined());
    }
  });
}

TEST_F(JoinModels, SparseGradientsAreSummedOverTheRanksThatHaveData) {
  if (wanted_test_device() == TestDevice::kGpuOverNccl) GTEST_SKIP() << kNoSparseSums;
  for (const JoinDivisor divide_by : {JoinDivisor::kParticipants, JoinDivisor::kSamples}) {
    run(3, [=](const Rank& rank) {
      Accelerator accelerator(on_cpu());
      torch::nn::Embedding net(torch::nn::EmbeddingOptions(5, 2).sparse(true));
      auto model = accelerator.prepare(net);
      accelerator.join_uneven_inputs(
          [&] {
            for (int step = 0; step < rank.rank; ++step) {
              model.zero_grad();
              accelerator.backward(model(torch::tensor({rank.rank, step}).to(test_device())).sum(),
                                   {.samples = rank.rank});
              // Rows 1 and 2 for the ranks with their weights, row 0 or 1 for the step.
              const bool weighted = divide_by == JoinDivisor::kSamples;
              const at::Tensor expected = step == 1 ? torch::tensor({0.0, 1.0, 1.0, 0.0, 0.0})
                                          : weighted
                                              ? torch::tensor({1.0, 1.0 / 3, 2.0 / 3, 0.0, 0.0})
                                              : torch::tensor({1.0, 0.5, 0.5, 0.0, 0.0});
              const at::Tensor actual = net->weight.grad().to_dense().cpu();
              EXPECT_TRUE(actual.allclose(expected.view({5, 1}).expand({5, 2}).to(at::kFloat)))
                  << actual;
            }
          },
          {.divide_by = divide_by});
      accelerator.wait_for_everyone();
    });
  }
}

TEST_F(JoinModels, ModelsMayTakeTurns) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto one = seeded_net();
    auto other = seeded_net();
    auto [first, second, first_sgd, second_sgd] =
        accelerator.prepare(one, other, torch::optim::SGD(one->parameters(), kJoinRate),
                            torch::optim::SGD(other->parameters(), kJoinRate));
    accelerator.join_uneven_inputs([&] {
      for (int step = 0; step < 2 * rank.rank; ++step) {
        const StepData data = batch_of(rank.rank, step);
        second_sgd.zero_grad();
        accelerator.backward(loss_of(second(data.input), data.target));
        second_sgd.step();
        if (step % 2 == 1) continue;
        first_sgd.zero_grad();
        accelerator.backward(loss_of(first(data.input), data.target));
        first_sgd.step();
      }
    });
    const auto rows = [](int, int) { return kRows; };
    EXPECT_TRUE(near(flat(other->parameters()),
                     expected_training({0, 2, 4}, JoinDivisor::kParticipants, rows).parameters));
    EXPECT_TRUE(same_on_all_ranks(accelerator, one->parameters()));
    EXPECT_FALSE(near(flat(one->parameters()), flat(other->parameters())));
  });
}

// Several buckets in each model: those of one must not meet those of the other.
TEST_F(JoinModels, OneLossMayReachSeveralModels) {
  const std::vector<DdpOptions> kinds{{},
                                      {.find_unused_parameters = true},
                                      {.static_graph = true},
                                      {.gradient_as_bucket_view = true}};
  for (const DdpOptions& kind : kinds) {
    run(3, [=](const Rank& rank) {
      constexpr int64_t kHidden = 60'000;
      Accelerator accelerator(on_cpu(kind));
      auto one = seeded_net<Mlp>(kHidden);
      auto other = seeded_net<Mlp>(kHidden + 1);
      auto [first, second] = accelerator.prepare(one, other);
      const auto sum_of = [](auto& a, auto& b, double factor) {
        const at::Tensor first_sum = a(ones_times(factor)).sum();
        return first_sum + b(ones_times(factor)).sum();
      };
      const auto expect_mean = [&](const std::vector<double>& factors) {
        for (const auto& net : {one, other}) {
          auto reference = seeded_net<Mlp>(net->first->weight.size(0));
          for (double factor : factors) {
            (reference->forward(ones_times(factor)).sum() / factors.size()).backward();
          }
          EXPECT_TRUE(near(flat(gradients(net->parameters())),
                           flat(gradients(reference->parameters())), 1e-4));
        }
      };
      accelerator.join_uneven_inputs(
          [&] {
            for (int step = 0; step < 2 * rank.rank; ++step) {
              one->zero_grad();
              other->zero_grad();
              // Backward passes go from the last to the first: once this model's, once that one's.
              accelerator.backward(step % 2 == 0 ? sum_of(first, second, rank.rank + 1)
                                                 : sum_of(second, first, rank.rank + 1));
              expect_mean(step < 2 ? std::vector<double>{2, 3} : std::vector<double>{3});
              // One alone in between, as overlapped as ever.
              one->zero_grad();
              accelerator.backward(first(ones_times(rank.rank + 1)).sum());
            }
          },
          second, first);
      for (int step = 0; step < 2; ++step) {
        one->zero_grad();
        other->zero_grad();
        accelerator.backward(sum_of(first, second, rank.rank + 1));
        expect_mean({1, 2, 3});
      }
    });
  }
}

TEST_F(JoinModels, AModelThatIsNotTrainedCostsAndChangesNothing) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto trained = seeded_net();
    auto idle = seeded_net();
    auto [model, idle_model] = accelerator.prepare(trained, idle);
    // One pass before the join: its buckets are to be built anew at the next.
    accelerator.backward(idle_model(ones_times(1)).sum());
    {
      torch::NoGradGuard no_grad;
      idle->first->bias.fill_(rank.rank);
    }
    accelerator.join_uneven_inputs([&] {
      for (int step = 0; step < 2 * rank.rank; ++step) {
        accelerator.backward(model(ones_times(1)).sum());
      }
    });
    EXPECT_EQ(idle->first->bias[0].item<int>(), rank.rank);
    accelerator.backward(idle_model(ones_times(1)).sum());
  });
}

}  // namespace
}  // namespace accelerate::test
