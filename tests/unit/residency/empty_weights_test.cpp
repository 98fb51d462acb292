// Modules that are built without memory, and the values that they get.
#include <accelerate/accelerate.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>
#include <functional>

#include "multiproc/state_folder.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Build = std::function<std::shared_ptr<torch::nn::Module>()>;

std::shared_ptr<torch::nn::Module> build_empty(const Build& build) {
  const auto empty = init_empty_weights();
  return build();
}

std::string refusal_of_values(const std::function<void()>& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// The same tensors, to the last bit.
void expect_same(const torch::nn::Module& one, const torch::nn::Module& other) {
  const ModelStateDict state = get_state_dict(one);
  const ModelStateDict expected = get_state_dict(other);
  ASSERT_EQ(state.keys(), expected.keys());
  for (const auto& item : expected) {
    const at::Tensor& own = state[item.key()];
    EXPECT_EQ(own.scalar_type(), item.value().scalar_type()) << item.key();
    EXPECT_EQ(own.strides(), item.value().strides()) << item.key();
    EXPECT_EQ(own.requires_grad(), item.value().requires_grad()) << item.key();
    EXPECT_TRUE(own.equal(item.value())) << item.key();
  }
}

// Of all kinds: initialised anew at the end, tied, of other strides, written in parts, buffers that
// are computed, arithmetic, sorting out by functions of torch.
struct Everything : torch::nn::Module {
  Everything() {
    linear = register_module("linear", torch::nn::Linear(20, 30));
    other = register_module("other", torch::nn::Linear(20, 30));
    table = register_module(
        "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(40, 8).padding_idx(3)));
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 6, {1, 3})));
    lstm = register_module("lstm", torch::nn::LSTM(5, 7));
    norm = register_module("norm", torch::nn::BatchNorm1d(9));
    register_parameter("tied", linear->weight);
    register_parameter("drawn", torch::randn({6, 5}) * 0.3 + 1);
    register_parameter("factor", torch::full({}, 0.5));
    register_parameter("row", torch::tensor({1.5, 2.5}));
    register_parameter("half", torch::rand({33}, at::kHalf), /*requires_grad=*/false);
    register_buffer("mask", torch::ones({4, 4}).tril());
    register_buffer("rates", 1.0 / torch::pow(10000.0, torch::arange(0, 8, 2).to(at::kFloat) / 8));
    register_buffer("numbers", torch::arange(5));
    register_buffer("flags", torch::ones({3}, at::kBool));
    conv->weight.set_data(conv->weight.detach().transpose(0, 3).contiguous().transpose(0, 3));
    const torch::NoGradGuard no_grad;
    torch::nn::init::orthogonal_(other->weight);
    for (auto& item : named_parameters()) {  // as models of transformers do
      if (item.key() == "linear.weight") item.value().normal_(0, 0.02);
      if (item.key() == "linear.bias") item.value().zero_();
      if (item.key() == "lstm.weight_ih_l0") item.value().mul_(2).add_(linear->bias.sum());
    }
    table->weight[7].fill_(4);
  }
  torch::nn::Linear linear = nullptr, other = nullptr;
  torch::nn::Embedding table = nullptr;
  torch::nn::Conv2d conv = nullptr;
  torch::nn::LSTM lstm = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};

const Build kEverything = [] { return std::make_shared<Everything>(); };

TEST(EmptyWeights, GetTheValuesOfTheSameProgram) {
  torch::manual_seed(3);
  const auto expected = kEverything();
  const at::Tensor after = torch::rand({4});
  torch::manual_seed(3);
  const auto empty = build_empty(kEverything);
  EXPECT_TRUE(has_empty_weights(*empty));
  for (const at::Tensor& parameter : empty->parameters()) EXPECT_EQ(parameter.has_storage(), true);
  materialize(*empty);
  EXPECT_FALSE(has_empty_weights(*empty));
  expect_same(*empty, *expected);
  EXPECT_TRUE(torch::rand({4}).equal(after)) << "random numbers go on after those of the module";
  auto& own = dynamic_cast<Everything&>(*empty);
  EXPECT_TRUE(own.named_parameters()["tied"].is_same(own.linear->weight));
  own.linear->weight.sum().backward();
  EXPECT_TRUE(own.linear->weight.grad().defined());
}

TEST(EmptyWeights, HaveNoMemoryAndSaySoWhereValuesAreAsked) {
  const auto net = build_empty(kEverything);
  at::Tensor weight = dynamic_cast<Everything&>(*net).linear->weight;
  EXPECT_TRUE(weight.is_meta());
  EXPECT_THAT(weight.sizes(), ElementsAre(30, 20));
  EXPECT_THAT(refusal_of_values([&] { (void)weight.data_ptr(); }),
              HasSubstr("was made inside of accelerate::init_empty_weights() and has no values"));
  EXPECT_THAT(refusal_of_values([&] { (void)weight.detach().sum().item<float>(); }),
              AllOf(HasSubstr("the values of an empty tensor are asked for"),
                    HasSubstr("materialize(module)")));
  at::Tensor ordinary = torch::zeros({30, 20});
  EXPECT_THAT(refusal_of_values([&] { ordinary.copy_(weight.detach()); }),
              HasSubstr("would be written to another one"));
  torch::nn::Module of_torch;
  of_torch.register_parameter("weight", torch::zeros({3}, c10::Device(c10::kMeta)));
  EXPECT_THAT(
      refusal_of_values([&] { materialize(of_torch); }),
      AllOf(HasSubstr("'weight' is on the meta device"), HasSubstr("init_empty_weights()")));
}

TEST(EmptyWeights, AreOfTheirThreadAndScopeAlone) {
  {
    const auto empty = init_empty_weights();
    EXPECT_TRUE(torch::zeros({2}).is_meta());
    EXPECT_FALSE(torch::arange(3).is_meta());
    EXPECT_EQ(torch::tensor({1.5, 2.5})[1].item<double>(), 2.5);
    EXPECT_EQ(torch::tensor({{1, 2}, {3, 4}}).sum().item<int64_t>(), 10);
    EXPECT_EQ(torch::tensor(std::vector<float>{1, 2}).sum().item<float>(), 3);
    EXPECT_THAT(refusal_of_values([] { const EmptyWeights inner; }),
                HasSubstr("init_empty_weights() inside of another one"));
  }
  EXPECT_FALSE(torch::zeros({2}).is_meta());
}

TEST(EmptyWeights, RememberWhatIsDoneAfterTheirScope) {
  torch::manual_seed(5);
  torch::nn::Linear expected(8, 9), other(4, 4);
  torch::manual_seed(5);
  torch::nn::Linear net(nullptr), next(nullptr);
  {
    const auto empty = init_empty_weights();
    net = torch::nn::Linear(8, 9);
  }
  {
    const auto empty = init_empty_weights();
    next = torch::nn::Linear(4, 4);
  }
  for (auto* each : {&net, &expected}) {
    const torch::NoGradGuard no_grad;
    (*each)->weight.mul_(3);
    (*each)->to(at::kBFloat16);
  }
  EXPECT_EQ(net->weight.scalar_type(), at::kBFloat16);
  materialize(*next);
  materialize(*net);
  expect_same(*net, *expected);
  expect_same(*next, *other);
}

TEST(EmptyWeights, FollowSeedsThatTheProgramSets) {
  const Build build = [] {
    torch::nn::Sequential net(torch::nn::Linear(4, 5));
    torch::manual_seed(77);
    net->push_back(torch::nn::Linear(5, 6));
    return net.ptr();
  };
  torch::manual_seed(1);
  const auto expected = build();
  torch::manual_seed(1);
  const auto net = build_empty(build);
  const at::Tensor drawn = torch::rand({3});  // in between
  materialize(*net);
  expect_same(*net, *expected);
  torch::manual_seed(77);
  (void)torch::rand({3});
  EXPECT_TRUE(torch::rand({2}).defined());
}

TEST(EmptyWeights, RefuseRandomNumbersThatWouldComeOutOfTurn) {
  EXPECT_THAT(refusal_of_values([] {
                const auto empty = init_empty_weights();
                const torch::nn::Linear net(3, 4);
                (void)torch::randperm(10);
              }),
              HasSubstr("an ordinary tensor is filled at random after empty ones were"));
}

TEST(EmptyWeights, RefuseWhatWasChangedSince) {
  at::Tensor table = torch::ones({3, 4});
  torch::nn::Linear net(nullptr);
  {
    const auto empty = init_empty_weights();
    net = torch::nn::Linear(4, 3);
    const torch::NoGradGuard no_grad;
    net->weight.copy_(table);
  }
  table.add_(1);
  EXPECT_THAT(refusal_of_values([&] { materialize(*net); }),
              AllOf(HasSubstr("aten::copy_ makes values of an empty one was changed since")));
}

TEST(EmptyWeights, AreLoadedFromFiles) {
  const StateFolder folder;
  torch::manual_seed(9);
  const auto saved = kEverything();
  save_model(*saved, folder / "one");
  save_model(*saved, folder / "several", {.max_shard_size = 3000});
  save_model(*saved, folder / "archive", {.safe_serialization = false});
  for (const char* kind : {"one", "several", "archive"}) {
    const auto net = build_empty(kEverything);
    const LoadReport report = load_checkpoint_in_model(*net, folder / kind, {.strict = true});
    EXPECT_THAT(report.missing_keys, testing::IsEmpty());
    EXPECT_TRUE(has_empty_weights(*net));
    materialize(*net);
    expect_same(*net, *saved);
    const torch::NoGradGuard no_grad;
    net->parameters()[0].add_(1);  // not the file
  }
  const auto again = build_empty(kEverything);
  load_checkpoint_in_model(*again, folder / "one", {.dtype = at::kBFloat16});
  materialize(*again);
  EXPECT_EQ(again->parameters()[0].scalar_type(), at::kBFloat16);
  EXPECT_TRUE(again->parameters()[0].equal(saved->parameters()[0].to(at::kBFloat16)));
}

TEST(EmptyWeights, ThatAFileLacksAreInitialised) {
  const StateFolder folder;
  const auto make = [] {
    torch::nn::Sequential net(torch::nn::Linear(4, 5), torch::nn::Linear(5, 6));
    return net.ptr();
  };
  torch::manual_seed(2);
  const auto expected = make();
  NamedTensors some;
  some.insert("0.weight", torch::ones({5, 4}));
  save_safetensors(folder / "some.safetensors", some);
  torch::manual_seed(2);
  const auto net = build_empty(make);
  const LoadReport report = load_checkpoint_in_model(*net, folder / "some.safetensors");
  EXPECT_THAT(report.missing_keys, ElementsAre("0.bias", "1.weight", "1.bias"));
  materialize(*net);
  EXPECT_TRUE(net->named_parameters()["0.weight"].equal(torch::ones({5, 4})));
  for (const char* name : {"0.bias", "1.weight", "1.bias"}) {
    EXPECT_TRUE(net->named_parameters()[name].equal(expected->named_parameters()[name])) << name;
  }
  const auto running = build_empty(make);
  load_checkpoint_and_dispatch(*running, folder / "some.safetensors",
                               {.device_map = {{"", c10::Device(c10::kCPU)}}});
  EXPECT_FALSE(has_empty_weights(*running));
}

TEST(EmptyWeights, AreMadeWholeByPrepareOnOneProcess) {
  torch::manual_seed(4);
  const auto expected = std::make_shared<torch::nn::LinearImpl>(6, 7);
  torch::manual_seed(4);
  std::shared_ptr<torch::nn::LinearImpl> net;
  {
    const auto empty = init_empty_weights();
    net = std::make_shared<torch::nn::LinearImpl>(6, 7);
  }
  torch::optim::AdamW adamw(net->parameters(), 0.1);
  Accelerator accelerator({.cpu = true});
  EXPECT_THAT(refusal_of_values([&] {
                const auto empty = init_empty_weights();
                (void)accelerator.prepare(net);
              }),
              HasSubstr("a model is prepared inside of init_empty_weights()"));
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  expect_same(*net, *expected);
  accelerator.backward(model(torch::ones({2, 6})).sum());
  optimizer.step();
  EXPECT_FALSE(net->weight.equal(expected->weight));
}

}  // namespace
}  // namespace accelerate::test
