// What a training tells about itself in the stream of events of its rank.
#include <accelerate/accelerator.h>
#include <gmock/gmock.h>

#include <limits>
#include <string>
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

}  // namespace
}  // namespace accelerate::test
