// What a training tells about itself in the stream of events of its rank.
#include <accelerate/accelerator.h>
#include <accelerate/process_control.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "comm/groups/activity.h"
#include "device/replay_actions.h"
#include "multiproc/state_folder.h"
#include "support/ranks.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

struct TrainingEvents : Ranks {
  StateFolder folder;
};

// What has happened since the last call, of the kinds named: "step 1".
std::vector<std::string> texts_of(EventStream::Reader& reader,
                                  const std::vector<EventKind>& kinds) {
  std::vector<std::string> texts;
  for (Event event; reader.next(event);) {
    if (std::find(kinds.begin(), kinds.end(), event.kind) == kinds.end()) continue;
    texts.push_back(event.kind == EventKind::kStep ? "step " + std::to_string(event.number)
                                                   : std::string(event.text()));
  }
  EXPECT_EQ(reader.lost(), 0U);
  return texts;
}

AcceleratorOptions cpu_options() {
  AcceleratorOptions options;
  options.cpu = true;
  return options;
}

TEST_F(TrainingEvents, StepsAreCountedOverAllOptimizers) {
  run(1, [](const Rank&) {
    Accelerator accelerator(cpu_options());
    torch::nn::Linear one(2, 1), other(2, 1);
    torch::optim::SGD first(one->parameters(), 0.1), second(other->parameters(), 0.1);
    auto [model_a, model_b, sgd_a, sgd_b] = accelerator.prepare(one, other, first, second);
    EventStream::Reader reader(comm::events_of(accelerator.communicator()));
    for (int i = 0; i < 2; ++i) {
      accelerator.backward((model_a(torch::ones({1, 2})) + model_b(torch::ones({1, 2}))).sum());
      sgd_a.step();
      sgd_b.step();
      sgd_a.zero_grad();
      sgd_b.zero_grad();
    }
    EXPECT_THAT(texts_of(reader, {EventKind::kStep}),
                ElementsAre("step 1", "step 2", "step 3", "step 4"));
  });
}

TEST_F(TrainingEvents, ForwardPassesAreToldFromBeginToEndHoweverTheyEnd) {
  run(1, [](const Rank&) {
    Accelerator accelerator(cpu_options());
    const auto model = accelerator.prepare(torch::nn::Linear(2, 1));
    EventStream::Reader reader(comm::events_of(accelerator.communicator()));
    (void)model(torch::ones({1, 2}));
    EXPECT_ANY_THROW((void)model(torch::ones({1, 3})));
    EXPECT_THAT(texts_of(reader, {EventKind::kSpanBegin, EventKind::kSpanEnd}),
                ElementsAre("forward", "forward", "forward", "forward"));
  });
}

TEST_F(TrainingEvents, StepsThatWereSkippedOrRecordedAreNotCounted) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = cpu_options();
    options.mixed_precision = "fp16";
    Accelerator accelerator(options);
    torch::nn::Linear net(2, 1);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    EventStream::Reader reader(comm::events_of(accelerator.communicator()));
    for (const float factor : {std::numeric_limits<float>::infinity(), 1.0F}) {
      accelerator.backward(model(torch::ones({1, 2})).sum() * factor);
      optimizer.step();
      EXPECT_EQ(optimizer.step_was_skipped(), factor != 1.0F);
      optimizer.zero_grad();
    }
    EXPECT_THAT(texts_of(reader, {EventKind::kStep}), ElementsAre("step 1"));
  });
  run(1, [](const Rank&) {
    Accelerator accelerator(cpu_options());
    torch::nn::Linear net(2, 1);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    EventStream::Reader reader(comm::events_of(accelerator.communicator()));
    const device::KeptGradients as_before_a_recording;
    const auto pass = [&, &model = model] {
      accelerator.backward(model(torch::ones({1, 2})).sum());
    };
    pass();
    optimizer.step();
    optimizer.zero_grad();
    device::ReplayActions actions;
    pass();
    {
      const device::ReplayActions::Scope recording(actions);
      optimizer.step();
    }
    EXPECT_THAT(texts_of(reader, {EventKind::kStep}), ElementsAre("step 1"));
    actions.run_after();
    EXPECT_THAT(texts_of(reader, {EventKind::kStep}), ElementsAre("step 2"));
  });
}

TEST_F(TrainingEvents, CheckpointsAndWhatTheyExchangeAreTold) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(cpu_options());
    EventStream::Reader reader(comm::events_of(accelerator.communicator()));
    const std::string directory = (folder / "state").string();
    accelerator.save_state(directory);
    const auto saved = texts_of(
        reader, {EventKind::kCheckpointBegin, EventKind::kSpanBegin, EventKind::kCollectiveBegin});
    EXPECT_THAT(saved, IsSupersetOf({std::string("save_state"), "save " + directory}));
    EXPECT_THAT(saved, Contains(AllOf(HasSubstr("save_state (all_gather"))));
    accelerator.load_state(directory);
    EXPECT_THAT(texts_of(reader, {EventKind::kCheckpointBegin, EventKind::kCheckpointEnd}),
                ElementsAre("load " + directory, "load " + directory));
  });
}

// The writer has a group of its own, and tells of itself in the same stream.
TEST_F(TrainingEvents, ASaveBesideTheTrainingIsToldInTheSameStream) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(cpu_options());
    EventStream::Reader reader(comm::events_of(accelerator.communicator()));
    const std::string directory = (folder / "state").string();
    accelerator.save_state(directory, {.async = true}).wait();
    EXPECT_THAT(texts_of(reader, {EventKind::kCheckpointBegin, EventKind::kCheckpointEnd}),
                testing::UnorderedElementsAre("save " + directory, "save " + directory,
                                              "write " + directory, "write " + directory));
    accelerator.wait_for_everyone();
  });
}

// What the checkpoints that have ended since the last call came to: "save a: failed".
std::vector<std::string> outcomes_of(EventStream::Reader& reader) {
  std::vector<std::string> outcomes;
  for (Event event; reader.next(event);) {
    if (event.kind != EventKind::kCheckpointEnd) continue;
    outcomes.push_back(std::string(event.text()) +
                       (event.outcome() == EventOutcome::kWell ? ": well" : ": failed"));
  }
  EXPECT_EQ(reader.lost(), 0U);
  return outcomes;
}

TEST_F(TrainingEvents, TheEndOfACheckpointSaysOnAllRanksWhetherItWentWell) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(cpu_options());
    EventStream::Reader reader(comm::events_of(accelerator.communicator()));
    const std::string first = (folder / "first").string();
    const std::string second = (folder / "second").string();
    const std::string third = (folder / "third").string();
    // In the way of a file that rank 1 writes.
    auto hook = accelerator.register_save_state_pre_hook(
        [&](auto&, const std::filesystem::path& directory) {
          if (rank.rank == 1) std::filesystem::create_directory(directory / "random_states_1.pkl");
        });
    EXPECT_THROW(accelerator.save_state(first), CheckpointError);
    EXPECT_THAT(outcomes_of(reader), ElementsAre("save " + first + ": failed"));
    EXPECT_THROW(accelerator.save_state(second, {.async = true}).wait(), CheckpointError);
    EXPECT_THAT(outcomes_of(reader), testing::UnorderedElementsAre("save " + second + ": well",
                                                                   "write " + second + ": failed"));
    hook.remove();
    accelerator.save_state(third, {.async = true}).wait();
    EXPECT_THAT(outcomes_of(reader), testing::UnorderedElementsAre("save " + third + ": well",
                                                                   "write " + third + ": well"));
    EXPECT_THROW(accelerator.load_state(folder / "nowhere"), CheckpointError);
    EXPECT_THAT(outcomes_of(reader),
                ElementsAre("load " + (folder / "nowhere").string() + ": failed"));
  });
}

TEST_F(TrainingEvents, WhoIsDoneInWorkWithoutATimeoutIsSeenToWait) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(cpu_options());
    const auto events = comm::events_of(accelerator.communicator());
    const auto waits_for_the_others = [&] {
      return std::ranges::any_of(events->board(), [](const Event& event) {
        return event.kind == EventKind::kWaitBegin && event.text() == "without_timeout";
      });
    };
    std::thread reader;
    without_timeout(accelerator.communicator(), [&] {
      EXPECT_FALSE(waits_for_the_others());
      if (rank.rank == 1) return rank.wait_for(0, 1);
      reader = std::thread([&] {
        while (!waits_for_the_others()) std::this_thread::yield();
        rank.reach(1);
      });
    });
    if (reader.joinable()) reader.join();
    EXPECT_FALSE(waits_for_the_others());
  });
}

// Lets rank 0 read its second sample only when the others are seen to wait for it.
struct HeldSamples {
  std::function<void()> hold;
  int64_t size() const { return 4; }
  int64_t get(size_t index) const {
    if (index == 2) hold();
    return static_cast<int64_t>(index);
  }
};

TEST_F(TrainingEvents, CallsAreNamedAsTheUserMadeThem) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(cpu_options());
    EventStream::Reader reader(comm::events_of(accelerator.communicator()));
    const auto told = [&] { return texts_of(reader, {EventKind::kSpanBegin}); };
    { const auto turn = accelerator.main_process_first(); }
    EXPECT_THAT(told(), Contains(rank.rank == 0 ? "main_process_first: letting the other ranks in"
                                                : "the ranks that go first"));
    synchronize_rng_states(accelerator, {"torch"});
    EXPECT_THAT(told(), Contains("synchronize_rng_states"));
  });
}

TEST_F(TrainingEvents, WaitingForABatchOfRankZeroIsOnTheBoardAndInTheStream) {
  run(2, [](const Rank& rank) {
    AcceleratorOptions options = cpu_options();
    options.data_loader.dispatch_batches = true;
    Accelerator accelerator(options);
    const auto events = comm::events_of(accelerator.communicator());
    EventStream::Reader reader(events);
    const auto is_waiting = [&] {
      return std::ranges::any_of(events->board(), [](const Event& event) {
        return event.kind == EventKind::kWaitBegin &&
               event.text().starts_with("loader: next batch from rank 0 (broadcast from 0");
      });
    };
    const auto loader = accelerator.prepare(
        data_loader(HeldSamples{[&] { rank.wait_for(1, 1); }}, {.batch_size = 1}));
    std::thread watching;
    int batches = 0;
    for (const auto& batch : loader) {
      EXPECT_EQ(batch.data.size(0), 1);
      if (++batches > 1 || rank.rank == 0) continue;
      watching = std::thread([&] {
        while (!is_waiting()) std::this_thread::yield();
        rank.reach(1);
      });
    }
    if (watching.joinable()) watching.join();
    EXPECT_EQ(batches, 2);
    const auto told = texts_of(reader, {EventKind::kSpanBegin, EventKind::kWaitBegin});
    const std::string own =
        rank.rank == 0 ? "loader: a batch for the other ranks" : "loader: next batch from rank 0";
    EXPECT_EQ(std::ranges::count(told, own), 3);  // two batches and the end
    EXPECT_THAT(told, Contains(testing::StartsWith(own + " (broadcast from 0")));
    accelerator.wait_for_everyone();
  });
}

// Data that are slow on this rank alone: nobody waits for another rank.
TEST_F(TrainingEvents, LoadingABatchIsOnTheBoardUntilItIsThere) {
  run(1, [](const Rank&) {
    Accelerator accelerator(cpu_options());
    const auto events = comm::events_of(accelerator.communicator());
    const auto is_loading = [&] {
      return std::ranges::any_of(events->board(), [](const Event& event) {
        return event.kind == EventKind::kSpanBegin && event.text() == "loader: next batch";
      });
    };
    bool seen = false;
    const auto loader = accelerator.prepare(
        data_loader(HeldSamples{[&] { seen = is_loading(); }}, {.batch_size = 1}));
    seen = false;  // prepare() has read samples too
    EventStream::Reader reader(events);
    for (const auto& batch : loader) {
      EXPECT_EQ(batch.data.size(0), 1);
      EXPECT_FALSE(is_loading());
    }
    EXPECT_TRUE(seen);
    EXPECT_FALSE(is_loading());
    EXPECT_THAT(texts_of(reader, {EventKind::kSpanBegin}),
                testing::Each(std::string("loader: next batch")));
  });
}

}  // namespace
}  // namespace accelerate::test
