// How modules come to an XLA device, whose tensors cannot take the place of the CPU's in silence.
#include <gmock/gmock.h>

#include "xla/xla_runs.h"

namespace accelerate {
namespace {

using test::on_device;
using test::ReadmeNet;
using test::ReadmeNetImpl;
using testing::HasSubstr;

struct OwnTensorsImpl : torch::nn::Module {
  torch::nn::Linear layer{8, 8};
  torch::Tensor scale, mean;
  OwnTensorsImpl() {
    register_module("layer", layer);
    scale = register_parameter("scale", torch::full({8}, 2.0));
    mean = register_buffer("mean", torch::ones({8}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return layer(x - mean) * scale; }
};
TORCH_MODULE(OwnTensors);

// Holds what no search finds.
struct HidingImpl : torch::nn::Module {
  std::vector<torch::Tensor> weights;
  HidingImpl() { weights.push_back(register_parameter("weight", torch::ones({4, 4}))); }
  torch::Tensor forward(const torch::Tensor& x) { return x.matmul(weights[0]); }
};
TORCH_MODULE(Hiding);

TEST(XlaMoving, FollowsMembersOfModulesAndOptimizers) {
  Accelerator accelerator(on_device("xla"));
  OwnTensors net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  for (const auto& tensor : {net->scale, net->mean, net->layer->weight, net->layer->bias}) {
    EXPECT_EQ(tensor.device(), accelerator.device());
  }
  EXPECT_TRUE(net->scale.requires_grad());
  EXPECT_FALSE(net->mean.requires_grad());
  for (const auto& parameter : sgd.param_groups()[0].params()) {
    EXPECT_EQ(parameter.device(), accelerator.device());
  }
  accelerator.backward(model(torch::ones({2, 8}, accelerator.device())).sum());
  const auto before = net->scale.detach().cpu();
  optimizer.step();
  EXPECT_FALSE(net->scale.detach().cpu().equal(before));
}

TEST(XlaMoving, FollowsAModuleOfMakeShared) {
  Accelerator accelerator(on_device("xla"));
  auto net = std::make_shared<OwnTensorsImpl>();
  (void)accelerator.prepare(net);
  EXPECT_EQ(net->scale.device(), accelerator.device());
  EXPECT_EQ(net->layer->weight.device(), accelerator.device());
}

TEST(XlaMoving, KeepsWhatAnOptimizerKnowsOfItsParameters) {
  Accelerator accelerator(on_device("xla"));
  ReadmeNet net;
  torch::optim::AdamW adamw(net->parameters(), 1e-2);
  net(torch::ones({2, 16})).sum().backward();
  adamw.step();
  adamw.zero_grad();
  (void)accelerator.prepare(net, adamw);
  ASSERT_EQ(adamw.state().size(), 4U);
  for (const auto& parameter : net->parameters()) {
    const auto& state = adamw.state().at(parameter.unsafeGetTensorImpl());
    const auto& known = static_cast<const torch::optim::AdamWParamState&>(*state);
    EXPECT_EQ(known.step(), 1);
    EXPECT_EQ(known.exp_avg().device(), accelerator.device());
  }
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(XlaMoving, NamesAParameterThatSomebodyElseHolds) {
  Accelerator accelerator(on_device("xla"));
  const auto x = torch::ones({2, 16}, accelerator.device());
  {
    ReadmeNet net;
    const auto kept = net->parameters();
    auto model = accelerator.prepare(net);
    EXPECT_THAT(refusal_of([&] { (void)model(x); }),
                testing::AllOf(HasSubstr("'hidden.weight' moved to xla:0"), HasSubstr("1 other")));
  }
  Accelerator another(on_device("xla"));
  Hiding hiding;
  auto model = another.prepare(hiding);
  EXPECT_THAT(refusal_of([&] { (void)model(x); }), HasSubstr("'weight' moved to xla:0"));
}

TEST(XlaMoving, RefusesHooksThatWouldBeLost) {
  Accelerator accelerator(on_device("xla"));
  ReadmeNet net;
  net->out->bias.register_hook([](const torch::Tensor& grad) { return grad * 2; });
  EXPECT_THAT(refusal_of([&] { (void)accelerator.prepare(net); }),
              HasSubstr("'out.bias' has hooks of its gradient, which cannot follow it to xla:0"));
}

TEST(XlaMoving, ModulesAreBornThere) {
  Accelerator accelerator(on_device("xla"));
  Hiding hiding = nullptr;
  ReadmeNet net = nullptr;
  torch::manual_seed(3);
  {
    const auto here = init_on_device(accelerator.device());
    hiding = Hiding();
    net = ReadmeNet();
  }
  EXPECT_EQ(hiding->weights[0].device(), accelerator.device());
  torch::manual_seed(3);
  ReadmeNet of_cpu;
  EXPECT_TRUE(net->hidden->weight.detach().cpu().equal(of_cpu->hidden->weight));
  auto model = accelerator.prepare(hiding);
  EXPECT_EQ(model(torch::ones({1, 4}, accelerator.device())).cpu().sum().item<float>(), 16);
}

TEST(XlaMoving, ThreadsOfAutogradAreInNoScope) {
  const Accelerator accelerator(on_device("xla"));
  const auto here = init_on_device(accelerator.device());
  const auto x = torch::ones({4}).requires_grad_();
  x.register_hook([](const torch::Tensor& grad) { return grad + torch::ones({4}, grad.device()); });
  (x * x).sum().backward();
  EXPECT_EQ(x.grad().device(), accelerator.device());
  EXPECT_EQ(x.grad().cpu().sum().item<float>(), 12);
}

}  // namespace
}  // namespace accelerate
