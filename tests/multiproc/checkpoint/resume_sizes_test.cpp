// A state that was saved on some number of ranks goes on on another.
#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

// From P ranks to Q.
struct OtherSize : Ranks, testing::WithParamInterface<std::pair<int, int>> {};

INSTANTIATE_TEST_SUITE_P(Ranks, OtherSize,
                         testing::Values(std::pair(1, 2), std::pair(1, 3), std::pair(2, 1),
                                         std::pair(2, 3), std::pair(3, 1), std::pair(3, 2)),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "to" +
                                  std::to_string(info.param.second);
                         });

TEST_P(OtherSize, SamplesFollowInTheSameOrder) {
  const auto [saved_on, loaded_on] = GetParam();
  const StateFolder folder;
  constexpr int64_t kSamples = 41;
  const auto batches = [] {
    return data_loader(Integers{kSamples}, {.batch_size = 2, .shuffle = true, .seed = 11});
  };
  const auto order = run_collect(1, [&](const Rank&) {
    Accelerator accelerator = sharding_accelerator();
    return real_samples(accelerator.prepare(batches()), accelerator);
  })[0];
  run(saved_on, [&](const Rank&) {
    Accelerator accelerator = sharding_accelerator();
    auto loader = accelerator.prepare(batches());
    int rounds = 0;
    for (const auto& batch : loader) {
      static_cast<void>(batch);
      if (++rounds < 3) continue;
      accelerator.save_state(folder / "state");
      break;
    }
  });
  run(loaded_on, [&, saved_on = saved_on](const Rank&) {
    Accelerator accelerator = sharding_accelerator();
    auto loader = accelerator.prepare(batches());
    accelerator.load_state(folder / "state");
    const int64_t used = 3 * 2 * saved_on;
    EXPECT_EQ(real_samples(loader, accelerator),
              std::vector<int64_t>(order.begin() + used, order.end()));
  });
}

TEST_P(OtherSize, WeightsOptimizerAndScheduleAreTheSame) {
  const auto [saved_on, loaded_on] = GetParam();
  const StateFolder folder;
  const auto trained = run_collect(saved_on, [&](const Rank&) {
    ResumeTraining training({}, 7);
    training.train(0, 5);
    training.accelerator().save_state(folder / "state");
    return flat(training.net()->parameters());
  });
  run(loaded_on, [&](const Rank&) {
    ResumeTraining training({}, 1000);
    training.accelerator().load_state(folder / "state");
    EXPECT_EQ(flat(training.net()->parameters()), trained[0]);
    EXPECT_EQ(training.optimizer().step_count(), 5);
    training.train(5, 8);  // goes on
  });
}

TEST_P(OtherSize, GradientsOfAnOpenWindowBecomeTheirMean) {
  const auto [saved_on, loaded_on] = GetParam();
  const StateFolder folder;
  const ResumeCase what{.accumulation = 3};
  const auto gradients_of_ranks = run_collect(saved_on, [&](const Rank&) {
    ResumeTraining training(what, 7);
    training.train(0, 2);
    training.accelerator().save_state(folder / "state");
    return flat(gradients(training.net()->parameters()));
  });
  std::vector<double> mean(gradients_of_ranks[0].size(), 0);
  for (const auto& of_rank : gradients_of_ranks) {
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += of_rank[i] / saved_on;
  }
  run(loaded_on, [&](const Rank&) {
    ResumeTraining training(what, 1000);
    training.accelerator().load_state(folder / "state");
    EXPECT_TRUE(near(flat(gradients(training.net()->parameters())), mean, 1e-7));
    EXPECT_FALSE(training.accelerator().sync_gradients());
    training.train(2, 3);
    EXPECT_TRUE(training.accelerator().sync_gradients());
    EXPECT_EQ(training.optimizer().step_count(), 1);
  });
}

TEST_P(OtherSize, OldRanksGoOnWithTheirRandomNumbersAndNewOnesHaveTheirOwn) {
  const auto [saved_on, loaded_on] = GetParam();
  const StateFolder folder;
  const auto drawn = run_collect(saved_on, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    torch::manual_seed(100 + static_cast<uint64_t>(rank.rank));
    accelerator.save_state(folder / "state");
    return flat({torch::rand({4})});
  });
  const auto load = [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    torch::manual_seed(static_cast<uint64_t>(rank.rank));
    accelerator.load_state(folder / "state");
    return flat({torch::rand({4})});
  };
  const auto loaded = run_collect(loaded_on, load);
  for (int rank = 0; rank < loaded_on; ++rank) {
    const auto& own = loaded[static_cast<size_t>(rank)];
    if (rank < saved_on) {
      EXPECT_EQ(own, drawn[static_cast<size_t>(rank)]) << "rank " << rank;
    } else {
      EXPECT_THAT(drawn, testing::Not(testing::Contains(own))) << "rank " << rank;
    }
  }
  EXPECT_EQ(run_collect(loaded_on, load), loaded) << "the same whenever it is loaded";
}

}  // namespace
}  // namespace accelerate::test
