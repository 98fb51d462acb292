// Losses that leave gradients in some models alone: backward(loss, {.only = model}).
#include "multiproc/accumulation.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct LossTargetsOn : AccumulationOn {};
INSTANTIATE_TEST_SUITE_P(Ranks, LossTargetsOn, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

// Scores what a generator makes: from the three outputs of an Mlp to one number a row.
struct Critic : torch::nn::Module {
  Critic() : layer(register_module("layer", torch::nn::Linear(3, 1))) {
    torch::nn::init::constant_(layer->weight, 0.25);
    torch::nn::init::constant_(layer->bias, 0.5);
    to(test_device());
  }
  at::Tensor forward(const at::Tensor& made) { return layer(torch::tanh(made)); }

  torch::nn::Linear layer;
};

at::Tensor critic_loss(const at::Tensor& of_real, const at::Tensor& of_fake) {
  return (of_real - 1).square().mean() + of_fake.square().mean();
}
at::Tensor generator_loss(const at::Tensor& of_fake) { return (of_fake - 1).square().mean(); }

std::vector<double> together(const std::vector<at::Tensor>& first,
                             const std::vector<at::Tensor>& second) {
  auto values = flat(first);
  for (const double value : flat(second)) values.push_back(value);
  return values;
}

// A step of both with plain libtorch for each window of rows.
std::vector<double> gan_of_big_batches(const StepData& data, int64_t window) {
  auto generator = fresh_net();
  auto critic = std::make_shared<Critic>();
  torch::optim::SGD generator_sgd(generator->parameters(), 0.1);
  torch::optim::SGD critic_sgd(critic->parameters(), 0.1);
  for (int64_t first = 0; first < data.input.size(0); first += window) {
    const at::Tensor fake = generator->forward(data.input.narrow(0, first, window));
    generator_sgd.zero_grad();
    generator_loss(critic->forward(fake)).backward();
    critic_sgd.zero_grad();
    critic_loss(critic->forward(data.target.narrow(0, first, window)),
                critic->forward(fake.detach()))
        .backward();
    generator_sgd.step();
    critic_sgd.step();
  }
  return together(generator->parameters(), critic->parameters());
}

TEST_P(LossTargetsOn, AGanWithAccumulationEqualsOneWithBigBatches) {
  run_ranks([](const Rank& rank) {
    constexpr int64_t kSteps = 4;
    const int64_t window = 2 * kSteps * rank.world_size;
    const StepData data = host_data_of_step(0, 2 * window);
    const auto expected =
        gan_of_big_batches({data.input.to(test_device()), data.target.to(test_device())}, window);
    for (const bool find_unused : {false, true}) {
      AcceleratorOptions options = accumulating({.steps = kSteps});
      options.ddp.find_unused_parameters = find_unused;
      Accelerator accelerator(options);
      auto net = fresh_net();
      auto critic_net = std::make_shared<Critic>();
      torch::optim::SGD sgd(net->parameters(), 0.1);
      torch::optim::SGD critic_sgd(critic_net->parameters(), 0.1);
      auto [generator, critic, optimizer, critic_optimizer, loader] = accelerator.prepare(
          net, critic_net, sgd, critic_sgd,
          data_loader(TensorDataset(data.input, data.target), {.batch_size = 2}));
      for (auto& batch : loader) {
        const auto micro_batch = accelerator.accumulate(generator, critic);
        const at::Tensor fake = generator(batch.data);
        critic->zero_grad();
        accelerator.backward(critic_loss(critic(batch.target), critic(fake.detach())));
        generator->zero_grad();
        accelerator.backward(generator_loss(critic(fake)), {.only = generator});
        critic_optimizer.step();
        optimizer.step();
      }
      EXPECT_TRUE(near(together(net->parameters(), critic_net->parameters()), expected))
          << "find_unused_parameters " << find_unused;
    }
  });
}

// Parameters of the critic that no loss uses would hold up its gradients, if the pass were its own.
TEST_P(LossTargetsOn, AModelThatIsLeftOutNeedsNoGradientsAtAll) {
  run_ranks([](const Rank&) {
    for (const bool find_unused : {false, true}) {
      Accelerator accelerator(on_cpu({.find_unused_parameters = find_unused}));
      auto net = fresh_net();
      auto branches = std::make_shared<Branches>();
      auto [generator, critic] = accelerator.prepare(net, branches);
      const StepData data = data_of_step(0, kRows);
      const at::Tensor six = torch::cat({generator(data.input), generator(data.input)}, 1);
      accelerator.backward(critic(six, "a").square().mean(), {.only = generator});
      for (const at::Tensor& parameter : critic.parameters()) {
        EXPECT_FALSE(parameter.grad().defined());
      }
      EXPECT_NE(net->second->bias.grad().abs().sum().item<double>(), 0);
      // The next pass into the critic alone.
      accelerator.backward(critic(six.detach(), "abc").square().mean(), {.only = critic});
      EXPECT_TRUE(critic.parameters()[0].grad().defined());
    }
  });
}

TEST_P(LossTargetsOn, SeveralModelsAndModulesCanBeNamed) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto first_net = fresh_net();
    auto second_net = fresh_net();
    auto third_net = fresh_net();
    auto [first, second, third] = accelerator.prepare(first_net, second_net, third_net);
    const StepData data = data_of_step(0, kRows);
    const auto loss = [&, &first = first, &second = second, &third = third] {
      return loss_of(first(data.input) + second(data.input) + third(data.input), data.target);
    };
    accelerator.backward(loss(), {.only = {first, third_net}});
    EXPECT_TRUE(first_net->first->bias.grad().defined());
    EXPECT_FALSE(second_net->first->bias.grad().defined());
    EXPECT_TRUE(third_net->first->bias.grad().defined());
    accelerator.backward(loss());
    EXPECT_TRUE(second_net->first->bias.grad().defined());
  });
}

TEST_P(LossTargetsOn, RefusesModelsWithoutTrainableParameters) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = fresh_net();
    auto frozen_net = fresh_net();
    for (at::Tensor& parameter : frozen_net->parameters()) parameter.requires_grad_(false);
    auto [model, frozen] = accelerator.prepare(net, frozen_net);
    const StepData data = data_of_step(0, kRows);
    const at::Tensor loss = loss_of(model(data.input), data.target);
    EXPECT_THAT(
        usage_error([&, &frozen = frozen] { accelerator.backward(loss, {.only = frozen}); }),
        HasSubstr("needs a gradient"));
  });
}

struct LossTargetsOfAPart : Ranks {};

TEST_F(LossTargetsOfAPart, AreRefusedOnSeveralRanks) {
  run(2, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    auto model = accelerator.prepare(net);
    const StepData data = data_of_step(0, kRows);
    EXPECT_THAT(
        usage_error([&] {
          accelerator.backward(loss_of(model(data.input), data.target), {.only = net->first});
        }),
        testing::AllOf(HasSubstr("'second.weight' is left out"), HasSubstr("the whole model")));
    accelerator.backward(loss_of(model(data.input), data.target), {.only = model});
    EXPECT_TRUE(net->second->weight.grad().defined());
  });
}

}  // namespace
}  // namespace accelerate::test
