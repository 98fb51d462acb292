// Members of a module beside forward(), and what libtorch does with a module, through the prepared
// model.
#include <sstream>

#include "multiproc/state_folder.h"
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// An actor and a critic on one trunk, as reinforcement learning has them.
struct ActorCriticImpl : torch::nn::Module {
  ActorCriticImpl()
      : trunk(register_module("trunk", torch::nn::Linear(6, 8))),
        actor(register_module("actor", torch::nn::Linear(8, 3))),
        critic(register_module("critic", torch::nn::Linear(8, 1))) {
    to(test_device());
  }
  at::Tensor forward(const at::Tensor& states) { return actor(torch::tanh(trunk(states))); }
  at::Tensor entropy(const at::Tensor& states) {
    const at::Tensor logs = torch::log_softmax(forward(states), 1);
    return -(logs.exp() * logs).sum(1).mean();
  }
  std::pair<at::Tensor, at::Tensor> logits_and_value(const at::Tensor& states) {
    return {forward(states), critic(torch::tanh(trunk(states)))};
  }
  at::Tensor& kept_weight() { return trunk->weight; }

  torch::nn::Linear trunk, actor, critic;
};
TORCH_MODULE(ActorCritic);

at::Tensor loss_through(ActorCritic& net, const at::Tensor& states) {
  const auto [logits, value] = net->logits_and_value(states);
  return logits.square().mean() + value.square().mean() - 0.1 * net->entropy(states);
}

struct ModelCalls : Ranks {
  StateFolder folder;
};

TEST_F(ModelCalls, TakeTheHolderTheModuleOrAPointerToIt) {
  run(1, [](const Rank&) {
    Accelerator accelerator(on_cpu());
    ActorCritic net;
    auto model = accelerator.prepare(net);
    const at::Tensor states = data_of_step(0, kRows).input;
    const auto expected = flat({net->entropy(states)});
    const auto of = [](const at::Tensor& value) { return flat({value}); };
    EXPECT_EQ(of(model.call([&](ActorCritic& own) { return own->entropy(states); })), expected);
    EXPECT_EQ(of(model.call([&](ActorCritic own) { return own->entropy(states); })), expected);
    EXPECT_EQ(model.call([](const ActorCritic& own) { return own->name(); }), net->name());
    EXPECT_EQ(of(model.call([&](ActorCriticImpl& own) { return own.entropy(states); })), expected);
    EXPECT_EQ(of(model.call([&](const std::shared_ptr<ActorCriticImpl>& own) {
                return own->entropy(states);
              })),
              expected);
    EXPECT_EQ(of(model->call([&](auto& own) { return own->entropy(states); })), expected);
    EXPECT_EQ(model.call([](torch::nn::Module& own) { return own.name(); }), net->name());
    // A reference stays one, and nothing may be returned too.
    EXPECT_EQ(&model.call([](ActorCriticImpl& own) -> at::Tensor& { return own.kept_weight(); }),
              &net->kept_weight());
    int calls = 0;
    model.call([&](ActorCriticImpl&) { ++calls; });
    EXPECT_EQ(calls, 1);
  });
}

// Through call(), or on the user's own handle: the gradients are those of one process.
void train_two_ranks(bool through_call) {
  const auto reference = [] {
    torch::manual_seed(5);
    ActorCritic net;
    loss_through(net, data_of_step(0, 2 * kRows).input).backward();
    return flat(gradients(net->parameters()));
  };
  Accelerator accelerator(on_cpu());
  const auto expected = reference();
  torch::manual_seed(5);
  ActorCritic net;
  auto model = accelerator.prepare(net);
  const at::Tensor states = rows_of(data_of_step(0, 2 * kRows).input, accelerator.process_index());
  accelerator.backward(through_call
                           ? model.call([&](ActorCritic& own) { return loss_through(own, states); })
                           : loss_through(net, states));
  EXPECT_TRUE(near(flat(gradients(net->parameters())), expected));
}

TEST_F(ModelCalls, AverageGradientsOverTheRanks) {
  run(2, [](const Rank&) { train_two_ranks(/*through_call=*/true); });
}

TEST_F(ModelCalls, GradientsAreRightThroughTheUsersOwnHandleToo) {
  run(2, [](const Rank&) { train_two_ranks(/*through_call=*/false); });
}

TEST_F(ModelCalls, RunInMixedPrecisionWhereTheOwnHandleDoesNot) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.mixed_precision = MixedPrecision::kBf16;
    Accelerator accelerator(options);
    ActorCritic net;
    auto model = accelerator.prepare(net);
    const at::Tensor states = data_of_step(0, kRows).input;
    c10::ScalarType inside = c10::kFloat;
    const auto [logits, value] = model.call([&](ActorCritic& own) {
      inside = own->forward(states).scalar_type();
      return own->logits_and_value(states);
    });
    EXPECT_EQ(inside, c10::kBFloat16);
    EXPECT_EQ(logits.scalar_type(), c10::kFloat);
    EXPECT_EQ(value.scalar_type(), c10::kFloat);
    EXPECT_EQ(net->forward(states).scalar_type(), c10::kFloat);
    EXPECT_NE(flat({logits}), flat({net->forward(states)}));
  });
}

TEST_F(ModelCalls, PreparedModelsArePrintedSavedAndLoadedByTorch) {
  run(1, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    ActorCritic net, other;
    auto model = accelerator.prepare(net);
    std::ostringstream own, prepared;
    own << net;
    prepared << model;
    EXPECT_EQ(prepared.str(), own.str());
    EXPECT_THAT(prepared.str(), HasSubstr("(critic): torch::nn::Linear(in_features=8"));

    torch::save(model, (folder / "net.pt").string());
    torch::load(other, (folder / "net.pt").string());
    EXPECT_EQ(flat(other->parameters()), flat(net->parameters()));

    const at::Tensor weight = net->trunk->weight;
    ActorCritic fresh;
    torch::save(fresh, (folder / "fresh.pt").string());
    torch::load(model, (folder / "fresh.pt").string());
    EXPECT_EQ(flat(net->parameters()), flat(fresh->parameters()));
    EXPECT_TRUE(weight.is_same(net->trunk->weight));  // what an optimizer holds
  });
}

}  // namespace
}  // namespace accelerate::test
