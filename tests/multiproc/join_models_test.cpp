// Joining models of every kind: with buffers, with unused parameters, sparse ones, several at once;
// and what is refused.
#include "multiproc/join_training.h"

namespace accelerate::test {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct JoinModels : Ranks {};

at::Tensor ones_times(double factor) { return torch::ones({2, 6}) * factor; }

// Its buffer adds up what it has seen.
struct Counting : torch::nn::Module {
  Counting()
      : linear(register_module("linear", torch::nn::Linear(6, 1))),
        seen(register_buffer("seen", torch::zeros({1}))) {}
  at::Tensor forward(const at::Tensor& input) {
    if (is_training()) seen.add_(input.detach().mean());
    return linear(input);
  }
  torch::nn::Linear linear;
  at::Tensor seen;
};

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
        EXPECT_TRUE(net->a->weight.grad().allclose(torch::full({3, 6}, 2 * mean)));
        EXPECT_FALSE(net->c->weight.grad().defined());
        if (step == 0) {
          EXPECT_TRUE(net->b->weight.grad().allclose(torch::full({3, 6}, 2.0)));  // 2 * 2 / 2
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
        EXPECT_TRUE(net->a->weight.grad().allclose(torch::full({3, 6}, 6.0)));
      }
    });
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      accelerator.backward(model(ones_times(rank.rank + 1), "ab").sum());
      EXPECT_TRUE(net->a->weight.grad().allclose(torch::full({3, 6}, 3.0)));
      EXPECT_TRUE(net->b->weight.grad().allclose(torch::full({3, 6}, 3.0)));
      EXPECT_FALSE(net->c->weight.grad().defined());
    }
  });
}

TEST_F(JoinModels, SparseGradientsAreSummedOverTheRanksThatHaveData) {
  for (const JoinDivisor divide_by : {JoinDivisor::kParticipants, JoinDivisor::kSamples}) {
    run(3, [=](const Rank& rank) {
      Accelerator accelerator(on_cpu());
      torch::nn::Embedding net(torch::nn::EmbeddingOptions(5, 2).sparse(true));
      auto model = accelerator.prepare(net);
      accelerator.join_uneven_inputs(
          [&] {
            for (int step = 0; step < rank.rank; ++step) {
              model.zero_grad();
              model.strategy()->set_batch_weight(rank.rank);
              accelerator.backward(model(torch::tensor({rank.rank, step})).sum());
              // Rows 1 and 2 for the ranks with their weights, row 0 or 1 for the step.
              const bool weighted = divide_by == JoinDivisor::kSamples;
              const at::Tensor expected = step == 1 ? torch::tensor({0.0, 1.0, 1.0, 0.0, 0.0})
                                          : weighted
                                              ? torch::tensor({1.0, 1.0 / 3, 2.0 / 3, 0.0, 0.0})
                                              : torch::tensor({1.0, 0.5, 0.5, 0.0, 0.0});
              const at::Tensor actual = net->weight.grad().to_dense();
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

TEST_F(JoinModels, AllRanksThrowOnAnEarlyEndWhereThatIsAskedFor) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = seeded_net();
    auto model = accelerator.prepare(net);
    int steps = 0;
    const auto join = [&](int length) {
      accelerator.join_uneven_inputs(
          [&] {
            for (int step = 0; step < length; ++step, ++steps) {
              accelerator.backward(model(ones_times(1)).sum());
            }
          },
          {.throw_on_early_end = true}, model);
    };
    join(2);  // even: nothing is thrown
    EXPECT_THAT(usage_error([&] { join(rank.rank == 1 ? 1 : 3); }),
                AllOf(HasSubstr("[rank " + std::to_string(rank.rank) + " of 3]"),
                      HasSubstr("rank 1 has run out of data, rank 0 has not")));
    EXPECT_EQ(steps, 3);
    net->zero_grad();
    accelerator.backward(model(ones_times(1)).sum());  // all can go on
  });
}

TEST_F(JoinModels, RanksThatDoDifferentThingsAreRefused) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto one = seeded_net();
    auto other = seeded_net();
    auto [first, second] = accelerator.prepare(one, other);
    EXPECT_THAT(usage_error([&] {
                  accelerator.join_uneven_inputs([&] {
                    if (rank.rank == 0) return;
                    auto& mine = rank.rank == 1 ? first : second;
                    accelerator.backward(mine(ones_times(1)).sum());
                  });
                }),
                HasSubstr("rank 1 is about to run a backward pass of model 0, rank 2 a backward "
                          "pass of model 1"));
  });
}

TEST_F(JoinModels, RanksThatJoinDifferentlyAreRefused) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(seeded_net());
    const JoinDivisor own = rank.rank == 0 ? JoinDivisor::kAllRanks : JoinDivisor::kSamples;
    EXPECT_THAT(
        usage_error([&] { accelerator.join_uneven_inputs([] {}, {.divide_by = own}, model); }),
        HasSubstr("the ranks join differently"));
  });
}

TEST_F(JoinModels, TrainingAModelThatWasNotNamedIsRefused) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto [joined, other] = accelerator.prepare(seeded_net(), seeded_net<Counting>());
    const auto train_other = [&] {
      torch::NoGradGuard no_buffers;
      at::AutoGradMode grad(true);
      accelerator.backward(other(ones_times(1)).sum());
    };
    EXPECT_THAT(usage_error([&] { accelerator.join_uneven_inputs(train_other, joined); }),
                HasSubstr("without being joined"));
    {
      auto alone = accelerator.no_sync(other);  // on its own rank it may
      accelerator.join_uneven_inputs(train_other, joined);
    }
    accelerator.join_uneven_inputs(train_other, joined, other);
  });
}

TEST_F(JoinModels, AModelOfAnotherAcceleratorIsRefused) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    Accelerator another(on_cpu());
    auto model = another.prepare(seeded_net());
    EXPECT_THAT(usage_error([&] { accelerator.join_uneven_inputs([] {}, model); }),
                HasSubstr("a model that this accelerator did not prepare"));
  });
}

TEST_F(JoinModels, AJoinInsideAJoinIsRefused) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(seeded_net());
    EXPECT_THAT(usage_error([&] {
                  accelerator.join_uneven_inputs([&] { accelerator.join_uneven_inputs([] {}); });
                }),
                HasSubstr("one join_uneven_inputs inside another"));
  });
}

TEST_F(JoinModels, UnusedParametersAreNamedAlsoWhereSeveralModelsMeet) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto [first, second] = accelerator.prepare(seeded_net(), seeded_net<Branches>());
    EXPECT_THAT(
        usage_error([&] {
          accelerator.join_uneven_inputs([&] {
            accelerator.backward(first(ones_times(1)).sum() + second(ones_times(1), "ac").sum());
          });
        }),
        AllOf(HasSubstr("b.weight, b.bias"), HasSubstr("find_unused_parameters")));
  });
}

TEST_F(JoinModels, AnExceptionInTheBodyLeavesAtOnceAndTheOthersNameItsRank) {
  spawn(3, [](const Rank& rank) {
    AcceleratorOptions options = on_cpu();
    options.process_group.timeout = std::chrono::minutes(10);
    Accelerator accelerator(options);
    auto model = accelerator.prepare(seeded_net());
    accelerator.join_uneven_inputs([&] {
      for (int step = 0; step < 10 * rank.rank; ++step) {
        if (step == 3 && rank.rank == 1) throw std::runtime_error("the data is spoilt");
        accelerator.backward(model(ones_times(1)).sum());
      }
    });
  });
  EXPECT_EQ(exit_code_of(1), kExitOtherException);
  EXPECT_THAT(error_of(1), HasSubstr("the data is spoilt"));
  for (int rank : {0, 2}) {
    EXPECT_EQ(exit_code_of(rank), kExitCommError);
    EXPECT_THAT(error_of(rank), AllOf(HasSubstr(rank == 0 ? "join_uneven_inputs" : "backward"),
                                      HasSubstr("rank 1 ")));
  }
  EXPECT_LT(elapsed(), seconds(45));
}

TEST_F(JoinModels, AfterAnExceptionInTheBodyTheModelCanBeJoinedAgain) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(seeded_net());
    EXPECT_THROW(accelerator.join_uneven_inputs([] { throw std::runtime_error("on all ranks"); }),
                 std::runtime_error);
    int steps = 0;
    accelerator.join_uneven_inputs([&] {
      for (; steps < 1 + rank.rank; ++steps) accelerator.backward(model(ones_times(1)).sum());
    });
    EXPECT_EQ(steps, 1 + rank.rank);
  });
}

TEST_F(JoinModels, SamplesCannotBeNegative) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(seeded_net());
    EXPECT_THAT(usage_error([&] { model.strategy()->set_batch_weight(-1); }),
                HasSubstr("a batch of -1 samples"));
  });
}

}  // namespace
}  // namespace accelerate::test
