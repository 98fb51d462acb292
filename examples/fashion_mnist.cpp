// Trains a convnet on Fashion-MNIST and prints the accuracy on its test images.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include "arguments.h"
#include "convnet.h"
#include "fashion_mnist_data.h"

void train(const Arguments& arguments) {
  accelerate::Accelerator accelerator;
  torch::manual_seed(arguments.seed);
  FashionMnist train_set(arguments.data, FashionMnist::Part::kTrain);
  FashionMnist test_set(arguments.data, FashionMnist::Part::kTest);

  auto train_batches =
      accelerate::data_loader(train_set, {.batch_size = arguments.batch_size, .shuffle = true});
  auto test_batches = accelerate::data_loader(test_set, {.batch_size = arguments.batch_size});
  ConvNet net;
  torch::optim::AdamW adamw(net->parameters(), arguments.lr);
  auto [model, optimizer, train_loader, test_loader] =
      accelerator.prepare(net, adamw, train_batches, test_batches);

  for (int64_t epoch = 1; epoch <= arguments.epochs; ++epoch) {
    for (auto& batch : accelerate::progress(train_loader, accelerator,
                                            {.description = "epoch " + std::to_string(epoch)})) {
      optimizer.zero_grad();
      auto loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
    }
  }

  torch::NoGradGuard no_grad;
  auto correct = torch::zeros({}, torch::dtype(torch::kInt64).device(accelerator.device()));
  for (auto& batch : test_loader) {
    auto hits = model(batch.data).argmax(1).eq(batch.target);
    correct += hits.slice(0, 0, batch.info().valid).sum();
  }
  correct = accelerator.reduce(correct);
  accelerator.print("test accuracy ", correct.item<double>() / *test_set.size());
}

int main(int argc, char** argv) {
  return accelerate::run([&] { train(parse_arguments(argc, argv)); });
}
