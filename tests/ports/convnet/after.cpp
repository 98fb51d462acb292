// A convnet that tells bars apart: one function that trains, one that tests, two loaders of
// torch::data.
//   usage: PROGRAM [BATCH_SIZE]
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>

#include "data.h"

constexpr size_t kEpochs = 3;
constexpr size_t kLogInterval = 2;

struct Net : torch::nn::Module {
  Net()
      : conv1(torch::nn::Conv2dOptions(1, 8, 3)),
        conv2(torch::nn::Conv2dOptions(8, 16, 3)),
        fc1(16 * 4 * 4, 32),
        fc2(32, 4) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(conv1->forward(x));
    x = torch::relu(torch::max_pool2d(conv2->forward(x), 2));
    x = torch::relu(fc1->forward(x.flatten(1)));
    return torch::log_softmax(fc2->forward(x), 1);
  }

  torch::nn::Conv2d conv1;
  torch::nn::Conv2d conv2;
  torch::nn::Linear fc1;
  torch::nn::Linear fc2;
};

template <typename DataLoader>
void train(accelerate::Accelerator& accelerator, size_t epoch, accelerate::Prepared<Net>& model,
           torch::Device device, DataLoader& data_loader, torch::optim::Optimizer& optimizer) {
  model.train();
  size_t batch_index = 0;
  for (auto& batch : data_loader) {
    auto data = batch.data.to(device);
    auto targets = batch.target.to(device);
    optimizer.zero_grad();
    auto loss = torch::nll_loss(model.forward(data), targets);
    accelerator.backward(loss);
    optimizer.step();
    const double value = accelerator.reduce(loss, "mean").template item<double>();
    TORCH_CHECK(!std::isnan(value));
    if (batch_index++ % kLogInterval == 0) {
      accelerator.print("train epoch ", epoch, " batch ", batch_index, " loss ", value);
    }
  }
}

template <typename DataLoader>
void test(accelerate::Accelerator& accelerator, accelerate::Prepared<Net>& model,
          torch::Device device, DataLoader& data_loader, size_t dataset_size) {
  torch::NoGradGuard no_grad;
  model.eval();
  double test_loss = 0;
  int64_t correct = 0;
  for (const auto& batch : data_loader) {
    auto [output, targets] = accelerator.gather_for_metrics(model.forward(batch.data.to(device)),
                                                            batch.target.to(device));
    test_loss +=
        torch::nll_loss(output, targets, {}, torch::Reduction::Sum).template item<double>();
    correct += output.argmax(1).eq(targets).sum().template item<int64_t>();
  }
  const auto samples = static_cast<double>(dataset_size);
  accelerator.print("test loss ", test_loss / samples, " accuracy ", correct / samples);
}

int main(int argc, char** argv) {
  const size_t batch_size = argc > 1 ? std::stoul(argv[1]) : 64;
  accelerate::Accelerator accelerator;
  torch::manual_seed(1);
  torch::Device device = accelerator.device();

  auto net = std::make_shared<Net>();

  auto train_set = Bars(0, 512)
                       .map(torch::data::transforms::Normalize<>(0.25, 0.25))
                       .map(torch::data::transforms::Stack<>());
  auto train_loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      std::move(train_set), batch_size);
  auto test_set = Bars(512, 150)
                      .map(torch::data::transforms::Normalize<>(0.25, 0.25))
                      .map(torch::data::transforms::Stack<>());
  const size_t test_size = test_set.size().value();
  auto test_loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      std::move(test_set), 64);

  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  auto [model, optimizer, train_batches, test_batches] =
      accelerator.prepare(net, sgd, train_loader, test_loader);

  for (size_t epoch = 1; epoch <= kEpochs; ++epoch) {
    train(accelerator, epoch, model, device, train_batches, optimizer);
    test(accelerator, model, device, test_batches, test_size);
  }
}
