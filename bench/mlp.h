// The model and the data that all training benchmarks share, here and in python_peer/.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>

namespace bench {

// 784-hidden-hidden-10 with ReLU between the layers.
struct MlpImpl : torch::nn::Module {
  explicit MlpImpl(int64_t hidden)
      : first(register_module("first", torch::nn::Linear(784, hidden))),
        second(register_module("second", torch::nn::Linear(hidden, hidden))),
        third(register_module("third", torch::nn::Linear(hidden, 10))) {}

  at::Tensor forward(const at::Tensor& x) {
    return third(torch::relu(second(torch::relu(first(x)))));
  }

  torch::nn::Linear first, second, third;
};
TORCH_MODULE(Mlp);

// What one loop trains. Equal tasks give equal parameters, whoever writes the loop.
struct Task {
  int64_t hidden = 512;
  int64_t batch_size = 64;
  int64_t steps_a_pass = 32;      // of each rank
  std::string optimizer = "sgd";  // or "adamw"
  uint64_t seed = 1;              // of the model, the data and the order
};

struct TrainingData {
  at::Tensor inputs;
  at::Tensor labels;
};

inline TrainingData make_data(const Task& task, int world_size) {
  torch::manual_seed(task.seed);
  const int64_t n = task.batch_size * task.steps_a_pass * world_size;
  at::Tensor inputs = torch::randn({n, 784});
  return {inputs, torch::randint(10, {n}, torch::kLong)};
}

inline Mlp make_model(const Task& task) {
  torch::manual_seed(task.seed);
  return Mlp(task.hidden);
}

inline std::shared_ptr<torch::optim::Optimizer> make_optimizer(
    const Task& task, const std::vector<at::Tensor>& parameters) {
  if (task.optimizer == "sgd") return std::make_shared<torch::optim::SGD>(parameters, 0.01);
  return std::make_shared<torch::optim::AdamW>(parameters, 1e-3);
}

}  // namespace bench
