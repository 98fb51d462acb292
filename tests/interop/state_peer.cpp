// The C++ half of state_interop.py: a small training that saves or loads its state.
//
//   state_peer save FOLDER    trains, saves the state to FOLDER, trains on and prints the losses
//   state_peer load FOLDER    loads the state from FOLDER, trains on and prints the losses
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <cstdio>
#include <string>

namespace {

constexpr int kBefore = 4;
constexpr int kAfter = 5;

// The same numbers on both sides.
torch::Tensor waves(int64_t rows, int64_t columns, double phase) {
  return torch::sin(torch::arange(rows * columns, torch::kDouble) * 0.7 + phase)
      .view({rows, columns})
      .to(torch::kFloat);
}

struct Counter {
  int64_t count = 0;
  accelerate::StateDict state_dict() const { return {{"count", count}}; }
  void load_state_dict(const accelerate::StateDict& state) {
    count = state.at("count").as_integer();
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const bool loads = std::string(argv[1]) == "load";
  accelerate::Accelerator accelerator({.cpu = true});
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Dropout(0.3),
                            torch::nn::Linear(8, 3));
  {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor& parameter : net->parameters()) {
      parameter.copy_(waves(1, parameter.numel(), loads ? 9 : 1).view_as(parameter) * 0.5);
    }
  }
  torch::optim::AdamW adamw(net->parameters(), 0.02);
  accelerate::Scheduler steps(adamw, accelerate::step_lr({.step_size = 3, .gamma = 0.5}));
  auto [model, optimizer, scheduler] = accelerator.prepare(net, adamw, steps);
  Counter counter;
  accelerator.register_for_checkpointing(counter);
  torch::manual_seed(5);
  const auto train = [&](int batches) {
    for (int i = 0; i < batches; ++i) {
      const auto phase = static_cast<double>(++counter.count);
      const torch::Tensor loss = torch::mse_loss(model(waves(6, 4, phase)), waves(6, 3, phase + 1));
      accelerator.backward(loss);
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      if (counter.count > kBefore) std::printf("%.9g\n", loss.item<double>());
    }
  };
  if (loads) {
    accelerator.load_state(argv[2]);
  } else {
    train(kBefore);
    accelerator.save_state(argv[2]);
  }
  train(kAfter);
}
