// Continuing from any micro-batch is the same, to the last bit, as never having stopped.
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

constexpr int kMicroBatches = 14;  // more than an epoch on every number of ranks

DdpOptions power_sgd() {
  return {.comm_hook = {.hook = CommHook::kPowerSgd, .power_sgd = {.start_power_sgd_iter = 2}}};
}

std::string name_of(const ResumeCase& what) {
  return what.optimizer + "_window" + std::to_string(what.accumulation) + "_workers" +
         std::to_string(what.workers) + (what.dropout ? "_dropout" : "") +
         (what.weighted ? "_weighted" : "") + (what.dispatch ? "_dispatch" : "") +
         (what.fp16 ? "_fp16" : "") + (what.ddp.static_graph ? "_static" : "") +
         (what.ddp.gradient_as_bucket_view ? "_views" : "") +
         (what.ddp.comm_hook.hook == CommHook::kNo ? "" : "_power_sgd");
}

struct Resume : Ranks, testing::WithParamInterface<std::tuple<int, ResumeCase>> {};

INSTANTIATE_TEST_SUITE_P(
    Ranks, Resume,
    testing::Combine(
        testing::Values(1, 2, 3),
        testing::Values(ResumeCase{.optimizer = "sgd"},
                        ResumeCase{.optimizer = "adamw", .accumulation = 3},
                        ResumeCase{.optimizer = "adam", .accumulation = 3, .workers = 2},
                        ResumeCase{.optimizer = "adamw", .workers = 2},
                        ResumeCase{.optimizer = "sgd", .ddp = power_sgd()},
                        ResumeCase{.optimizer = "sgd", .ddp = {.static_graph = true}},
                        ResumeCase{.optimizer = "adamw",
                                   .accumulation = 3,
                                   .ddp = {.gradient_as_bucket_view = true}},
                        ResumeCase{.optimizer = "adamw", .accumulation = 3, .fp16 = true},
                        ResumeCase{.optimizer = "rmsprop", .accumulation = 3, .dropout = false},
                        ResumeCase{.optimizer = "adagrad", .accumulation = 3, .weighted = true},
                        ResumeCase{.optimizer = "sgd", .accumulation = 3, .dispatch = true})),
    [](const auto& info) {
      return std::to_string(std::get<0>(info.param)) + "_" + name_of(std::get<1>(info.param));
    });

TEST_P(Resume, FromAnyMicroBatchIsTheSameAsNotHavingStopped) {
  const auto& [ranks, what] = GetParam();
  const StateFolder folder;
  run(ranks, [&folder, what = what](const Rank&) {
    const auto directory = [&](int done) { return folder / std::to_string(done); };
    std::vector<double> losses;
    std::vector<double> end;
    {
      ResumeTraining whole(what, 7);
      losses = whole.train(0, kMicroBatches);
      end = whole.fingerprint();
    }
    {
      ResumeTraining saving(what, 7);
      EXPECT_EQ(saving.train(0, kMicroBatches,
                             [&](int done) { saving.accelerator().save_state(directory(done)); }),
                losses)
          << "saving changed the training";
    }
    for (int done = 1; done <= kMicroBatches; ++done) {
      ResumeTraining resumed(what, 1000);
      EXPECT_EQ(resumed.accelerator().load_state(directory(done)), directory(done));
      EXPECT_EQ(resumed.train(done, kMicroBatches),
                std::vector<double>(losses.begin() + done, losses.end()))
          << "from " << done;
      EXPECT_EQ(resumed.fingerprint(), end) << "from " << done;
    }
  });
}

struct ResumeBuckets : Ranks, testing::WithParamInterface<DdpOptions> {};

INSTANTIATE_TEST_SUITE_P(Graphs, ResumeBuckets,
                         testing::Values(DdpOptions{}, DdpOptions{.static_graph = true},
                                         DdpOptions{.static_graph = true,
                                                    .gradient_as_bucket_view = true}));

// What sums round to depends on where in a bucket they stand, so equal losses need equal buckets.
TEST_P(ResumeBuckets, AreThoseOfARunThatDidNotStop) {
  const StateFolder folder;
  run(3, [&](const Rank&) {
    const ResumeCase what{.optimizer = "sgd", .ddp = GetParam()};
    const auto orders_of = [](ResumeTraining& training, int done, int end, auto after) {
      std::vector<std::vector<int64_t>> orders;
      training.train(done, end, [&](int n) {
        orders.push_back(training.gradient_order());
        after(n);
      });
      return orders;
    };
    ResumeTraining whole(what, 7);
    const auto orders = orders_of(whole, 0, 5, [&](int done) {
      whole.accelerator().save_state(folder / std::to_string(done));
    });
    EXPECT_THAT(orders, testing::Each(testing::SizeIs(6)));
    for (int done = 1; done < 5; ++done) {
      ResumeTraining resumed(what, 1000);
      resumed.accelerator().load_state(folder / std::to_string(done));
      EXPECT_EQ(orders_of(resumed, done, 5, [](int) {}),
                (std::vector<std::vector<int64_t>>(orders.begin() + done, orders.end())))
          << "from " << done;
    }
  });
}

}  // namespace
}  // namespace accelerate::test
