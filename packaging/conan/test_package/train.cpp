// Trains a line on each rank's share of some points.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

int main() {
  accelerate::Accelerator accelerator;
  torch::manual_seed(1);
  torch::nn::Linear line(1, 1);
  torch::optim::SGD sgd(line->parameters(), 0.1);
  const auto x = torch::linspace(-1, 1, 64).unsqueeze(1);
  auto batches =
      accelerate::data_loader(accelerate::TensorDataset(x, 3 * x + 1), {.batch_size = 8});
  auto [model, optimizer, loader] = accelerator.prepare(line, sgd, batches);
  double last = 0;
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (auto& batch : loader) {
      optimizer.zero_grad();
      auto loss = torch::mse_loss(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      last = loss.item<double>();
    }
  }
  accelerator.print("loss ", last);
  return last < 1e-2 ? 0 : 1;
}
