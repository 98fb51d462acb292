// What the models of DDP know about themselves.
#include "strategy/ddp/ddp_model.h"

#include "multiproc/group.h"
#include "multiproc/training.h"
#include "strategy/ddp/ddp_strategy.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct DdpModels : Ranks {};

TEST_F(DdpModels, KnowWhatTheyHaveBeenThrough) {
  run(2, [](const Rank&) {
    const auto state = ProcessState::from_environment({.cpu = true});
    auto ranks =
        std::make_shared<Communicator>(state, ProcessGroupOptions{.timeout = kUnreachedTimeout});
    DdpStrategy strategy(ranks, {});
    auto net = std::make_shared<Mlp>();
    net->to(at::kCPU);
    const auto wrapped = strategy.wrap(net);
    auto& model = dynamic_cast<DdpModel&>(*wrapped);
    const auto loss = [&] { return net->forward(torch::ones({2, 6})).sum(); };
    const auto plain_backward = [&] { loss().backward(); };
    EXPECT_TRUE(model.is_replicated());
    for (int pass = 0; pass < 4; ++pass) {
      model.begin_forward();
      const at::Tensor output = loss();
      model.before_backward(output);
      output.backward();
      model.after_backward();
    }
    EXPECT_EQ(model.reduced_passes(), 4);
    plain_backward();
    EXPECT_TRUE(model.holds_local_gradients());
    EXPECT_THAT(usage_error([&] { strategy.require_sound("here"); }),
                AllOf(HasSubstr("a backward pass bypassed accelerator.backward(loss)"),
                      HasSubstr("at   here")));
    strategy.before_zero_grad({torch::ones({3})});  // of another model
    EXPECT_THROW(model.require_no_local_pass("here"), UsageError);
    strategy.before_zero_grad({net->first->weight});  // others are left
    EXPECT_THROW(model.require_no_local_pass("here"), UsageError);
    strategy.before_zero_grad(net->parameters());
    model.require_no_local_pass("here");
    model.set_gradient_sync(GradientSync::kLocal);
    plain_backward();
    EXPECT_FALSE(model.is_replicated());
    model.set_gradient_sync(GradientSync::kOn);  // it was meant
    model.require_no_local_pass("here");
    model.set_gradient_sync(GradientSync::kPaused);
    plain_backward();
    model.set_gradient_sync(GradientSync::kOn);  // this one too: those before are still there
    model.require_no_local_pass("here");
    EXPECT_EQ(model.reduced_passes(), 4);
    model.release();
    EXPECT_TRUE(model.is_released());
    strategy.require_sound("here");
  });
}

}  // namespace
}  // namespace accelerate::test
