// Ranks with different numbers of batches: what each step and the model in the end must be.
#include "multiproc/strategy/join_training.h"

namespace accelerate::test {
namespace {

const auto kEqualRows = [](int, int) { return kRows; };

struct Join : Ranks {};

struct Case {
  std::vector<int> lengths;  // batches of each rank
  std::string name() const {
    std::string text;
    for (int length : lengths) text += (text.empty() ? "" : "_") + std::to_string(length);
    return text;
  }
};
const std::vector<Case> kCases{{{3, 1}},    {{0, 2}},    {{2, 2}},       {{1, 4, 2}},
                               {{3, 0, 0}}, {{0, 2, 5}}, {{4, 1, 0, 2}}, {{1, 2, 3, 4}}};

// Trains on `lengths[rank]` batches inside a join and compares each step and the end with training
// by hand.
template <class Rows>
void train_and_compare(const Rank& rank, const std::vector<int>& lengths,
                       const JoinOptions& options, Rows rows_of, const DdpOptions& ddp = {}) {
  const Expected expected = expected_training(lengths, options.divide_by, rows_of);
  Accelerator accelerator(on_cpu(ddp));
  auto net = seeded_net();
  auto [model, optimizer] =
      accelerator.prepare(net, torch::optim::SGD(net->parameters(), kJoinRate));
  accelerator.join_uneven_inputs(
      [&] {
        for (int step = 0; step < lengths[static_cast<size_t>(rank.rank)]; ++step) {
          const StepData data = batch_of(rank.rank, step, rows_of(rank.rank, step));
          optimizer.zero_grad();
          accelerator.backward(loss_of(model(data.input), data.target),
                               {.samples = data.input.size(0)});
          EXPECT_TRUE(near(flat(gradients(net->parameters())),
                           expected.gradients[static_cast<size_t>(step)]))
              << "step " << step;
          optimizer.step();
        }
      },
      options, model);
  EXPECT_TRUE(near(flat(net->parameters()), expected.parameters));
  EXPECT_TRUE(same_on_all_ranks(accelerator, net->parameters()));
}

struct JoinCases : Join, testing::WithParamInterface<Case> {};
INSTANTIATE_TEST_SUITE_P(Batches, JoinCases, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name(); });

TEST_P(JoinCases, AStepIsTheMeanOverTheRanksThatHaveData) {
  run(static_cast<int>(GetParam().lengths.size()),
      [](const Rank& rank) { train_and_compare(rank, GetParam().lengths, {}, kEqualRows); });
}

TEST_P(JoinCases, AStepIsDividedByAllRanksWhereThatIsAskedFor) {
  run(static_cast<int>(GetParam().lengths.size()), [](const Rank& rank) {
    train_and_compare(rank, GetParam().lengths, {.divide_by = JoinDivisor::kAllRanks}, kEqualRows);
  });
}

TEST_P(JoinCases, AStepIsTheMeanOverTheSamplesWhereThatIsAskedFor) {
  run(static_cast<int>(GetParam().lengths.size()), [](const Rank& rank) {
    train_and_compare(rank, GetParam().lengths, {.divide_by = JoinDivisor::kSamples}, uneven_rows);
  });
}

struct Kind {
  std::string name;
  DdpOptions options;
};
struct JoinKinds : Join, testing::WithParamInterface<Kind> {};
INSTANTIATE_TEST_SUITE_P(
    Ddp, JoinKinds,
    testing::Values(Kind{"Plain", {}}, Kind{"FindUnused", {.find_unused_parameters = true}},
                    Kind{"StaticGraph", {.static_graph = true}},
                    Kind{"BucketView", {.gradient_as_bucket_view = true}},
                    Kind{"StaticGraphAndBucketView",
                         {.static_graph = true, .gradient_as_bucket_view = true}},
                    Kind{"FindUnusedAndBucketView",
                         {.find_unused_parameters = true, .gradient_as_bucket_view = true}}),
    [](const auto& test) { return test.param.name; });

TEST_P(JoinKinds, AStepIsTheMeanOverTheRanksThatHaveData) {
  run(3, [](const Rank& rank) {
    train_and_compare(rank, {0, 2, 4}, {}, kEqualRows, GetParam().options);
  });
}

TEST_P(JoinKinds, AStepIsTheMeanOverTheSamplesWhereThatIsAskedFor) {
  run(3, [](const Rank& rank) {
    train_and_compare(rank, {3, 0, 4}, {.divide_by = JoinDivisor::kSamples}, uneven_rows,
                      GetParam().options);
  });
}

// Enough parameters for several buckets, which are built anew after the first pass.
TEST_P(JoinKinds, EpochsMayFollowEachOtherAndTrainingWithoutJoin) {
  constexpr int64_t kHidden = 60'000;
  constexpr double kRate = 1e-6;  // small: all these units move the output together
  const std::vector<std::vector<int>> epochs{{0, 1, 3}, {2, 0, 1}, {1, 1, 0}};
  run(3, [&](const Rank& rank) {
    auto reference = seeded_net<Mlp>(kHidden);
    Accelerator accelerator(on_cpu(GetParam().options));
    auto net = seeded_net<Mlp>(kHidden);
    auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), kRate));
    const auto train = [&](int steps) {
      for (int step = 0; step < steps; ++step) {
        const StepData data = batch_of(rank.rank, step);
        optimizer.zero_grad();
        accelerator.backward(loss_of(model(data.input), data.target));
        optimizer.step();
      }
    };
    const auto compare_after = [&](const std::vector<int>& lengths) {
      const at::Tensor probe = ones({1, 6});
      const auto before = flat({reference->forward(probe)});
      expected_training(lengths, JoinDivisor::kParticipants, kEqualRows, reference, kRate);
      const auto after = flat({reference->forward(probe)});
      EXPECT_FALSE(near(after, before, 1e-3));  // or it would not be seen
      EXPECT_TRUE(near(flat({net->forward(probe)}), after, 1e-4));
      EXPECT_TRUE(same_on_all_ranks(accelerator, net->parameters()));
    };
    for (const auto& lengths : epochs) {
      accelerator.join_uneven_inputs([&] { train(lengths[static_cast<size_t>(rank.rank)]); });
      compare_after(lengths);
    }
    train(2);
    compare_after({2, 2, 2});
  });
}

// The first pass of a rank that had no data in the join comes afterwards, inside no_sync.
TEST_P(JoinKinds, ARankWithoutAnyBatchMayBeginWithNoSyncAfterwards) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu(GetParam().options));
    auto net = seeded_net();
    auto model = accelerator.prepare(net);
    const StepData data = batch_of(rank.rank, 0);
    accelerator.join_uneven_inputs([&] {
      for (int step = 0; step < 2 && rank.rank == 1; ++step) {
        accelerator.backward(loss_of(model(data.input), data.target));
      }
    });
    net->zero_grad();
    {
      auto alone = accelerator.no_sync(model);
      for (int pass = 0; pass <= rank.rank; ++pass) {
        accelerator.backward(loss_of(model(data.input), data.target));
      }
    }
    accelerator.backward(loss_of(model(data.input), data.target));

    std::vector<at::Tensor> sums;
    for (int other = 0; other < 2; ++other) {
      auto reference = seeded_net();
      const StepData theirs = batch_of(other, 0);
      ((2.0 + other) * loss_of(reference->forward(theirs.input), theirs.target)).backward();
      for (size_t i = 0; i < reference->parameters().size(); ++i) {
        const at::Tensor half = reference->parameters()[i].grad() / 2;
        if (other == 0) {
          sums.push_back(half);
        } else {
          sums[i].add_(half);
        }
      }
    }
    EXPECT_TRUE(near(flat(gradients(net->parameters())), flat(sums)));
  });
}

TEST_P(JoinKinds, GradientsOfARankWithoutDataStayAsTheBodyLeftThem) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu(GetParam().options));
    auto net = seeded_net();
    auto model = accelerator.prepare(net);
    std::vector<double> left;
    accelerator.join_uneven_inputs([&] {
      for (int step = 0; step < 1 + 2 * rank.rank; ++step) {
        net->zero_grad();
        const StepData data = batch_of(rank.rank, step);
        accelerator.backward(loss_of(model(data.input), data.target));
      }
      left = flat(gradients(net->parameters()));
    });
    EXPECT_EQ(flat(gradients(net->parameters())), left);
  });
}

// Windows of two batches, of which the last may be short; a rank adds up its window alone.
TEST_P(JoinKinds, NoSyncPassesMayDifferInNumber) {
  const std::vector<int> lengths{5, 3, 0};
  run(3, [&](const Rank& rank) {
    auto reference = seeded_net();
    Accelerator accelerator(on_cpu(GetParam().options));
    auto net = seeded_net();
    auto model = accelerator.prepare(net);
    const auto length_of = [&](int r) { return lengths[static_cast<size_t>(r)]; };
    const auto expect_window = [&](int window) {  // no updates, so that one network serves
      int active = 0;
      for (int other = 0; other < 3; ++other) active += 2 * window < length_of(other) ? 1 : 0;
      reference->zero_grad();
      for (int other = 0; other < 3; ++other) {
        for (int step = 2 * window; step < std::min(2 * window + 2, length_of(other)); ++step) {
          const StepData data = batch_of(other, step);
          (loss_of(reference->forward(data.input), data.target) / active).backward();
        }
      }
      EXPECT_TRUE(
          near(flat(gradients(net->parameters())), flat(gradients(reference->parameters()))))
          << "window " << window;
    };
    accelerator.join_uneven_inputs([&] {
      for (int step = 0; step < length_of(rank.rank); ++step) {
        const StepData data = batch_of(rank.rank, step);
        if (step % 2 == 0) net->zero_grad();
        const bool sync = step % 2 == 1 || step + 1 == length_of(rank.rank);
        if (sync) {
          accelerator.backward(loss_of(model(data.input), data.target));
          expect_window(step / 2);
        } else {
          auto alone = accelerator.no_sync(model);
          accelerator.backward(loss_of(model(data.input), data.target));
        }
      }
    });
    accelerator.wait_for_everyone();
  });
}

TEST_F(Join, SamplesOfAWholeWindowCount) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = seeded_net();
    auto model = accelerator.prepare(net);
    // Rank 0 adds up batches of 1 and 2 samples, rank 1 has one of 5: weights 3 and 5.
    accelerator.join_uneven_inputs(
        [&] {
          if (rank.rank == 0) {
            auto alone = accelerator.no_sync(model);
            accelerator.backward(model(ones({1, 6})).sum(), {.samples = 1});
          }
          accelerator.backward(model(ones({1, 6})).sum(), {.samples = rank.rank == 0 ? 2 : 5});
        },
        {.divide_by = JoinDivisor::kSamples});
    // The bias of the last layer gets 2 on rank 0 and 1 on rank 1.
    EXPECT_TRUE(near(flat({net->second->bias.grad()}), std::vector<double>(3, (3 * 2 + 5) / 8.0)));

    net->zero_grad();  // weights end with the join
    accelerator.backward(model(ones({1, 6})).sum() * (rank.rank + 1));
    EXPECT_TRUE(near(flat({net->second->bias.grad()}), std::vector<double>(3, 1.5)));
  });
}

// 9 samples in batches of 2 are 2, 2 and 1 batches, of which the last on rank 1 has one sample.
TEST_F(Join, PreparedLoadersStayUnevenAndSayHowManySamplesABatchHas) {
  run(3, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    const at::Tensor numbers = torch::arange(9, at::kFloat).view({9, 1});
    auto [model, loader] = accelerator.prepare(
        torch::nn::Linear(1, 1), data_loader(TensorDataset(numbers, numbers), {.batch_size = 2}));
    std::vector<double> means;
    const auto train = [&, &model = model, &loader = loader] {
      for (auto& batch : loader) {
        model.zero_grad();
        accelerator.backward(model(batch.data).mean());
        means.push_back(model.module()->weight.grad().item<double>());
      }
    };
    accelerator.join_uneven_inputs(train,
                                   {.divide_by = JoinDivisor::kSamples, .even_batches = false});
    // The mean of the samples 0 to 5, then of 6, 7 and 8.
    EXPECT_TRUE(
        near(means, rank.rank == 2 ? std::vector<double>{2.5} : std::vector<double>{2.5, 7.0}));
    means.clear();
    accelerator.join_uneven_inputs(train);
    EXPECT_EQ(means.size(), 2U);  // even again
  });
}

TEST_F(Join, ARankWithoutSamplesHasNoWeight) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = seeded_net();
    auto model = accelerator.prepare(net);
    accelerator.join_uneven_inputs(
        [&] {
          const double factor = rank.rank == 0 ? std::numeric_limits<double>::quiet_NaN() : 2.0;
          accelerator.backward(model(ones({1, 6})).sum() * factor,
                               {.samples = rank.rank == 0 ? 0 : 3});
        },
        {.divide_by = JoinDivisor::kSamples});
    EXPECT_TRUE(near(flat({net->second->bias.grad()}), std::vector<double>(3, 2.0)));
  });
}

TEST_F(Join, OneProcessJustRunsTheBody) {
  run(1, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(seeded_net());
    int runs = 0;
    accelerator.join_uneven_inputs([&] { ++runs; }, {.throw_on_early_end = true}, model);
    EXPECT_EQ(runs, 1);
  });
}

TEST_F(Join, ABodyWithoutAnyPassEndsOnAllRanks) {
  run(3, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(seeded_net());
    accelerator.join_uneven_inputs([] {});
    accelerator.wait_for_everyone();
  });
}

}  // namespace
}  // namespace accelerate::test
