// Trains a convnet on Fashion-MNIST and prints the accuracy on its test images.
#include <torch/torch.h>

#include <iostream>

#include "arguments.h"
#include "convnet.h"
#include "fashion_mnist_data.h"

void train(const Arguments& arguments) {
  torch::manual_seed(arguments.seed);
  FashionMnist train_set(arguments.data, FashionMnist::Part::kTrain);
  FashionMnist test_set(arguments.data, FashionMnist::Part::kTest);

  auto train_loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      train_set.map(torch::data::transforms::Stack<>()), arguments.batch_size);
  auto test_loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      test_set.map(torch::data::transforms::Stack<>()), arguments.batch_size);
  ConvNet model;
  torch::optim::AdamW optimizer(model->parameters(), arguments.lr);

  for (int64_t epoch = 1; epoch <= arguments.epochs; ++epoch) {
    for (auto& batch : *train_loader) {
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
      loss.backward();
      optimizer.step();
    }
  }

  torch::NoGradGuard no_grad;
  auto correct = torch::zeros({}, torch::kInt64);
  for (auto& batch : *test_loader) {
    auto hits = model(batch.data).argmax(1).eq(batch.target);
    correct += hits.sum();
  }
  std::cout << "test accuracy " << correct.item<double>() / *test_set.size() << std::endl;
}

int main(int argc, char** argv) { train(parse_arguments(argc, argv)); }
