// Models with more in them than a linear layer: compiled twice, nothing left to the CPU.
#include <gmock/gmock.h>

#include "xla/xla_runs.h"

namespace accelerate {
namespace {

using test::CompileCount;
using test::on_device;
namespace F = torch::nn::functional;

struct SmallConvNetImpl : torch::nn::Module {
  torch::nn::Conv2d a{torch::nn::Conv2dOptions(1, 8, 3).padding(1)},
      b{torch::nn::Conv2dOptions(8, 16, 3).padding(1)};
  torch::nn::BatchNorm2d norm{8};
  torch::nn::Dropout drop;
  torch::nn::Linear out{16 * 7 * 7, 10};
  explicit SmallConvNetImpl(double dropout) : drop(dropout) {
    register_module("a", a), register_module("b", b), register_module("norm", norm);
    register_module("drop", drop), register_module("out", out);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm(a(x))), 2);
    x = torch::max_pool2d(torch::relu(b(x)), 2);
    return out(drop(x.flatten(1)));
  }
};
TORCH_MODULE(SmallConvNet);

std::vector<double> losses_of_convnet(const std::string& device, double dropout) {
  Accelerator accelerator(on_device(device));
  set_seed(0);  // also that of the device
  TensorDataset dataset(torch::randn({16 * 8, 1, 28, 28}), torch::randint(10, {16 * 8}));
  SmallConvNet net(dropout);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  auto batches = data_loader(dataset, {.batch_size = 16});
  auto [model, optimizer, loader] = accelerator.prepare(net, sgd, batches);
  std::vector<torch::Tensor> losses;
  for (auto& batch : loader) {
    optimizer.zero_grad();
    auto loss = F::cross_entropy(model(batch.data), batch.target);
    accelerator.backward(loss);
    optimizer.step();
    losses.push_back(loss.detach());
  }
  std::vector<double> numbers;
  for (const auto& loss : losses) numbers.push_back(loss.item<double>());
  return numbers;
}

TEST(XlaModels, AConvnetTrainsAsOnTheCpu) {
  const auto of_cpu = losses_of_convnet("cpu", 0);
  const CompileCount count;
  test::expect_same_losses(losses_of_convnet("xla", 0), of_cpu, 1e-4);
  EXPECT_LE(count.compilations(), 2);
  EXPECT_THAT(count.on_the_host(), testing::IsEmpty());
}

TEST(XlaModels, DropoutCostsNoCompilation) {
  const CompileCount count;
  const auto losses = losses_of_convnet("xla", 0.25);
  EXPECT_LE(count.compilations(), 2);
  EXPECT_THAT(count.on_the_host(), testing::IsEmpty());
  EXPECT_EQ(losses_of_convnet("xla", 0.25), losses);
  EXPECT_NE(losses_of_convnet("xla", 0.5), losses);
}

// Embeddings, attention with a causal mask, layer norm, a residual.
struct SmallDecoderImpl : torch::nn::Module {
  torch::nn::Embedding tokens{100, 32};
  torch::nn::Linear qkv{32, 96}, proj{32, 32}, head{32, 100};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({32})};
  SmallDecoderImpl() {
    register_module("tokens", tokens), register_module("qkv", qkv), register_module("proj", proj);
    register_module("head", head), register_module("norm", norm);
  }
  torch::Tensor forward(const torch::Tensor& ids) {
    auto x = tokens(ids);
    auto parts =
        qkv(norm(x)).view({x.size(0), x.size(1), 3, 4, 8}).permute({2, 0, 3, 1, 4}).unbind(0);
    auto y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0,
                                              /*is_causal=*/true);
    return head(x + proj(y.transpose(1, 2).reshape_as(x)));
  }
};
TORCH_MODULE(SmallDecoder);

std::vector<double> losses_of_decoder(const AcceleratorOptions& options) {
  Accelerator accelerator(options);
  torch::manual_seed(0);
  auto ids = torch::randint(100, {8 * 10, 17});
  TensorDataset dataset(ids.slice(1, 0, 16).contiguous(), ids.slice(1, 1, 17).contiguous());
  SmallDecoder net;
  torch::optim::AdamW adamw(net->parameters(), 1e-3);
  auto batches = data_loader(dataset, {.batch_size = 8});
  auto [model, optimizer, loader] = accelerator.prepare(net, adamw, batches);
  std::vector<torch::Tensor> losses;
  for (auto& batch : loader) {
    optimizer.zero_grad();
    auto loss = F::cross_entropy(model(batch.data).flatten(0, 1), batch.target.flatten());
    accelerator.backward(loss);
    accelerator.clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
    losses.push_back(loss.detach());
  }
  std::vector<double> numbers;
  for (const auto& loss : losses) numbers.push_back(loss.item<double>());
  return numbers;
}

TEST(XlaModels, ADecoderTrainsAsOnTheCpu) {
  const auto of_cpu = losses_of_decoder(on_device("cpu"));
  const CompileCount count;
  test::expect_same_losses(losses_of_decoder(on_device("xla")), of_cpu, 1e-4);
  EXPECT_LE(count.compilations(), 2);
  EXPECT_THAT(count.on_the_host(), testing::IsEmpty());
}

TEST(XlaModels, ADecoderTrainsInBfloat16) {
  const auto of_cpu = losses_of_decoder(on_device("cpu"));
  const CompileCount count;
  AcceleratorOptions options = on_device("xla");
  options.mixed_precision = "bf16";
  test::expect_same_losses(losses_of_decoder(options), of_cpu, 5e-2);
  EXPECT_LE(count.compilations(), 2);
  EXPECT_THAT(count.on_the_host(), testing::IsEmpty());
}

}  // namespace
}  // namespace accelerate
