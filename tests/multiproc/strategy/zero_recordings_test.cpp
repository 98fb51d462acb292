// Steps of sharded trainings are not recorded as graphs.
#include "device/replay_actions.h"
#include "multiproc/zero/zero_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct ZeroRecordings : Ranks {};

// What a recording gathers has no values, and the pass that follows would take it for parameters.
TEST_F(ZeroRecordings, AreRefusedBeforeAnythingIsGathered) {
  run(2, [](const Rank&) {
    for (const int stage : {2, 3}) {
      ZeroLoop loop(zero(stage, with_unused()));
      device::ReplayActions actions;
      {
        const device::ReplayActions::Scope recording(actions);
        const StepData data = data_of_step(0, 2);
        at::Tensor loss;
        if (stage == 2) loss = torch::mse_loss((*loop.model)(data.input), data.target);
        EXPECT_THAT(usage_error([&] {
                      if (stage == 3) (void)(*loop.model)(data.input);
                      loop.accelerator.backward(loss);
                    }),
                    AllOf(HasSubstr("cannot be recorded as a graph"),
                          HasSubstr(stage == 3 ? "at   forward" : "at   backward")))
            << "stage " << stage;
      }
      ZeroLoop usual(replicated());
      EXPECT_EQ(loop.train(0, 2).values(), usual.train(0, 2).values()) << "stage " << stage;
    }
  });
}

}  // namespace
}  // namespace accelerate::test
