// Under fp16: gradients that were not multiplied by the scale, or of which only a part was.
#include "multiproc/training/scaled_losses.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

AcceleratorOptions in_flat_fp16() {
  AcceleratorOptions options = in_fp16(1024);
  options.flat = FlatOptions{.dtype = at::kHalf};
  return options;
}

// On one process. Several ranks refuse such passes with and without fp16.
struct UnscaledPasses : Ranks {};

// From the three outputs of an Mlp to one.
torch::nn::Linear fresh_critic(bool trains) {
  torch::manual_seed(11);
  torch::nn::Linear critic(3, 1);
  critic->to(test_device());
  for (at::Tensor& parameter : critic->parameters()) parameter.set_requires_grad(trains);
  return critic;
}

// A GAN, one of whose losses was not ported.
struct Gan {
  explicit Gan(const AcceleratorOptions& options, bool critic_trains = true)
      : accelerator(options), critic_net(fresh_critic(critic_trains)) {}

  void losses(bool ported) {
    const at::Tensor fake = generator(ones({2, 6}));
    const at::Tensor of_critic = critic(fake.detach()).sum();
    ported ? accelerator.backward(of_critic) : of_critic.backward();
    accelerator.backward(critic(fake).sum(), {.only = generator});
  }
  std::vector<double> train(bool ported) {
    for (int i = 0; i < 3; ++i) {
      losses(ported);
      of_critic.step();
      of_generator.step();
      of_critic.zero_grad();
      of_generator.zero_grad();
    }
    return flat(critic->parameters());
  }

  Accelerator accelerator;
  std::shared_ptr<Mlp> net = fresh_net();
  torch::nn::Linear critic_net;
  torch::optim::SGD sgd{net->parameters(), 0.1};
  torch::optim::SGD critic_sgd{critic_net->parameters(), 0.1};
  PreparedModel<Mlp> generator = accelerator.prepare(net);
  PreparedModel<torch::nn::LinearImpl> critic = accelerator.prepare(critic_net);
  PreparedOptimizer of_generator = accelerator.prepare(sgd);
  PreparedOptimizer of_critic = accelerator.prepare(critic_sgd);
};

TEST_F(UnscaledPasses, AreNotStepped) {
  run(1, [](const Rank&) {
    for (const auto& options : {in_fp16(1024), in_flat_fp16()}) {
      Gan gan(options);
      const auto before = flat(gan.critic_net->parameters());
      EXPECT_THAT(usage_error([&] { gan.train(/*ported=*/false); }),
                  AllOf(HasSubstr("bypassed accelerator.backward(loss)"),
                        HasSubstr("for every loss"), HasSubstr("step")));
      EXPECT_EQ(flat(gan.critic_net->parameters()), before);
      const auto clip = [&] { gan.accelerator.clip_grad_norm_(gan.critic.parameters(), 1.0); };
      EXPECT_THAT(usage_error(clip), HasSubstr("bypassed"));
      EXPECT_THAT(usage_error([&] { gan.accelerator.unscale_gradients(); }), HasSubstr("bypassed"));
      gan.of_generator.step();  // whose loss was scaled
      gan.of_critic.zero_grad();
      gan.of_generator.zero_grad();
      gan.train(/*ported=*/true);
    }
  });
}

// As where one half of a model is trained first.
TEST_F(UnscaledPasses, OfParametersThatWereFrozenWhenPreparedAreNotSteppedEither) {
  run(1, [](const Rank&) {
    Gan gan(in_fp16(1024), /*critic_trains=*/false);
    for (at::Tensor& parameter : gan.critic_net->parameters()) parameter.set_requires_grad(true);
    EXPECT_THAT(usage_error([&] { gan.train(/*ported=*/false); }),
                HasSubstr("bypassed accelerator.backward(loss)"));
    gan.of_critic.zero_grad();
    gan.of_generator.zero_grad();
    gan.train(/*ported=*/true);
  });
}

TEST_F(UnscaledPasses, AreLegalWhereNoLossIsScaled) {
  run(1, [](const Rank&) { EXPECT_EQ(Gan(on_cpu()).train(false), Gan(on_cpu()).train(true)); });
}

TEST_F(UnscaledPasses, AreFoundBeforeAndAfterAScaledOne) {
  run(1, [](const Rank&) {
    for (const auto& options : {in_fp16(1024), in_flat_fp16()}) {
      const StepData data = data_of_step(0, kRows);
      PreparedMlp before(options);
      before.loss(data).backward();
      before.backward(data);
      EXPECT_THAT(usage_error([&] { before.optimizer.step(); }), HasSubstr("bypassed"));
      PreparedMlp after(options);
      after.backward(data);
      after.loss(data).backward();
      EXPECT_THAT(usage_error([&] { after.optimizer.step(); }), HasSubstr("bypassed"));
      EXPECT_THAT(usage_error([&] { after.optimizer.step(); }), HasSubstr("bypassed"));
      after.optimizer.zero_grad();
      after.train(data);
      PreparedMlp clean(options);
      clean.train(data);
      EXPECT_EQ(after.values(), clean.values());
    }
  });
}

TEST_F(UnscaledPasses, AreLegalWhereTheirGradientsAreDropped) {
  run(1, [](const Rank&) {
    const StepData data = data_of_step(0, kRows);
    PreparedMlp clean(in_fp16(1024));
    clean.train(data);
    const std::vector<std::function<void(PreparedMlp&)>> drops = {
        [](PreparedMlp& it) { it.optimizer.zero_grad(); },
        [](PreparedMlp& it) { it.optimizer.zero_grad(false); },
        [](PreparedMlp& it) { it.model.zero_grad(false); },
        [](PreparedMlp& it) { it.net->zero_grad(); },
        [](PreparedMlp& it) { it.sgd.zero_grad(false); },
    };
    for (const auto& drop : drops) {
      PreparedMlp it(in_fp16(1024));
      it.loss(data).backward();  // to look at its gradients
      drop(it);
      it.train(data);
      EXPECT_EQ(it.values(), clean.values());
    }
    // A pass that leaves no gradients behind.
    PreparedMlp it(in_fp16(1024));
    torch::autograd::grad({it.loss(data)}, it.net->parameters());
    it.train(data);
    EXPECT_EQ(it.values(), clean.values());
  });
}

// As a vocabulary is, after prepare().
TEST_F(UnscaledPasses, ParametersMayGetAnotherShapeBetweenPasses) {
  run(1, [](const Rank&) {
    PreparedMlp mlp(in_fp16(1024));
    mlp.train(data_of_step(0, kRows));
    const torch::NoGradGuard no_grad;
    torch::nn::Linear& last = mlp.net->second;
    last->weight.set_data(torch::cat({last->weight, last->weight}));
    last->bias.set_data(torch::cat({last->bias, last->bias}));
    const torch::AutoGradMode with_gradients(true);
    mlp.accelerator.backward(mlp.model(ones({2, 6})).sum());
    EXPECT_EQ(last->bias.grad().size(0), 6);
    mlp.step();
    mlp.model(ones({2, 6})).sum().backward();
    EXPECT_THAT(usage_error([&] { mlp.optimizer.step(); }), HasSubstr("bypassed"));
  });
}

struct GradientsOfTwoScales : ScaledLosses {};
INSTANTIATE_TEST_SUITE_P(Ranks, GradientsOfTwoScales, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(GradientsOfTwoScales, GetNoStepUntilTheyAreDropped) {
  run_ranks([](const Rank&) {
    for (const auto& options : {in_fp16(1024), in_flat_fp16()}) {
      const StepData data = data_of_step(0, kRows);
      PreparedMlp mlp(options);
      mlp.train(data);
      mlp.backward(data);
      mlp.clip_norm(1.0);
      EXPECT_THAT(usage_error([&] { mlp.backward(data); }), HasSubstr("already unscaled"));
      for (int i = 0; i < 2; ++i) {
        EXPECT_THAT(usage_error([&] { mlp.optimizer.step(); }),
                    AllOf(HasSubstr("already unscaled"), HasSubstr("zero_grad()")));
        EXPECT_THAT(usage_error([&] { mlp.clip_norm(1.0); }), HasSubstr("already unscaled"));
      }
      mlp.optimizer.zero_grad();
      mlp.train(data);
      PreparedMlp clean(options);
      clean.train(data);
      clean.train(data);
      EXPECT_EQ(mlp.values(), clean.values());
    }
  });
}

}  // namespace
}  // namespace accelerate::test
