// Trains by the strategy of averaging_strategy.h and by the library's own, on any number of
// processes. By plain SGD both make the same steps, but for rounding: ends with 1 if not.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <vector>

#include "averaging_strategy.h"

namespace {

// The parameters after a few epochs on the same data.
std::vector<at::Tensor> train(accelerate::Accelerator& accelerator) {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 1));
  torch::optim::SGD sgd(net->parameters(), 0.05);
  const at::Tensor inputs = torch::randn({48, 4});
  const accelerate::TensorDataset samples(inputs, inputs.sum(1, /*keepdim=*/true));
  auto [optimizer, model, loader] =
      accelerator.prepare(sgd, net, accelerate::data_loader(samples, {.batch_size = 4}));
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (auto& batch : loader) {
      accelerator.backward(torch::mse_loss(model(batch.data), batch.target));
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  return net->parameters();
}

}  // namespace

int main() {
  accelerate::Accelerator own({.cpu = true, .strategy = std::make_shared<strategies::Averaging>()});
  accelerate::Accelerator usual({.cpu = true});
  const std::vector<at::Tensor> actual = train(own);
  const std::vector<at::Tensor> expected = train(usual);
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i].allclose(expected[i], 1e-4, 1e-6)) continue;
    own.print("parameter ", i, " is ", actual[i], ", expected ", expected[i]);
    return 1;
  }
  own.print(own.strategy_name(), " and ", usual.strategy_name(), " agree on ", own.num_processes(),
            " processes");
  return own.strategy_name() == "averaging" ? 0 : 1;
}
