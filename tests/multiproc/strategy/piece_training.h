// A training whose strategy lets each rank keep a part of the model.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "install/consumer/strategies/sharded_parameters_strategy.h"
#include "multiproc/accumulation.h"
#include "multiproc/state_folder.h"

namespace accelerate::test {

inline AcceleratorOptions sharded(ProjectOptions project = {}) {
  AcceleratorOptions options = on_cpu();
  options.project = std::move(project);
  options.strategy = std::make_shared<strategies::ShardedParametersFactory>();
  return options;
}

// A net of matrices that no number of ranks divides evenly, a parameter of one element, a tied one,
// and a buffer.
struct PieceNet : Net {
  PieceNet()
      : first(register_module("first", torch::nn::Linear(6, 7))),
        second(register_module("second", torch::nn::Linear(7, 3))),
        factor(register_parameter("factor", torch::full({}, 0.5))),
        same_bias(register_parameter("same_bias", second->bias)),
        seen(register_buffer("seen", torch::tensor({3.0, 4.0}))) {
    to(test_device());
  }
  at::Tensor forward(at::Tensor input) override {
    return second(torch::tanh(first(input))) * factor + same_bias;
  }
  torch::nn::Linear first, second;
  at::Tensor factor, same_bias, seen;
};

struct PieceLoop {
  explicit PieceLoop(const AcceleratorOptions& options) : accelerator(options) {
    torch::manual_seed(5);
    net = std::make_shared<PieceNet>();
    const std::vector<at::Tensor> distinct{net->first->weight, net->first->bias,
                                           net->second->weight, net->second->bias, net->factor};
    auto prepared = accelerator.prepare(net, torch::optim::AdamW(distinct, 0.05));
    model.emplace(std::get<0>(prepared));
    optimizer.emplace(std::get<1>(prepared));
  }

  void micro_batch(int step, double factor = 1) {
    const int64_t rows = 12 / accelerator.num_processes();
    const StepData data = data_of_step(step, 12);
    const int rank = accelerator.process_index();
    const auto window = accelerator.accumulate(*model);
    accelerator.backward(factor * loss_of((*model)(rows_of(data.input, rank, rows)),
                                          rows_of(data.target, rank, rows)));
    if (accelerator.sync_gradients() && max_norm > 0) {
      norms.push_back(
          accelerator.clip_grad_norm_(optimizer->parameters(), max_norm).item<double>());
    }
    optimizer->step();
    optimizer->zero_grad();
  }
  PieceLoop& train(int first, int last) {
    for (int step = first; step < last; ++step) micro_batch(step);
    return *this;
  }
  // On rank 0; nothing elsewhere.
  std::vector<double> values() {
    std::vector<at::Tensor> all;
    for (const auto& item : accelerator.get_state_dict(*model)) all.push_back(item.value());
    return accelerator.is_main_process() ? flat(all) : std::vector<double>();
  }
  std::string refusal(const std::filesystem::path& directory, const LoadOptions& options = {}) {
    try {
      accelerator.load_state(directory, options);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return {};
  }

  Accelerator accelerator;
  std::shared_ptr<PieceNet> net;
  std::optional<PreparedModel<PieceNet>> model;
  std::optional<PreparedOptimizer> optimizer;
  double max_norm = 0.1;
  std::vector<double> norms;
};

}  // namespace accelerate::test
