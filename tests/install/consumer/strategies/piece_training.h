// Trains by a strategy that keeps pieces, and by the library's own, which make the same steps but
// for rounding.
#pragma once

#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace strategies {

inline constexpr int kRowsOfAllRanks = 12;
inline constexpr int kSteps = 4;

inline torch::nn::Sequential piece_net() {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  net->push_back(torch::nn::Linear(5, 7));
  net->push_back(torch::nn::Tanh());
  net->push_back(torch::nn::Linear(7, 3));
  return net;
}

struct PieceTraining {
  explicit PieceTraining(accelerate::StrategyOptions strategy)
      : accelerator({.cpu = true, .strategy = std::move(strategy)}) {
    model.emplace(accelerator.prepare(net));
    optimizer.emplace(accelerator.prepare(torch::optim::AdamW(net->parameters(), 0.05)));
  }

  // Each rank takes its rows of batches that are the same however many ranks there are.
  void train(int first, int last) {
    const int64_t rows = kRowsOfAllRanks / accelerator.num_processes();
    for (int step = first; step < last; ++step) {
      torch::manual_seed(100 + step);
      const at::Tensor inputs = torch::randn({kRowsOfAllRanks, 5});
      const at::Tensor own = inputs.narrow(0, accelerator.process_index() * rows, rows);
      accelerator.backward((*model)->forward(own).square().mean());
      norm = accelerator.clip_grad_norm_(net->parameters(), 0.5).item<double>();
      optimizer->step();
      optimizer->zero_grad();
    }
  }

  accelerate::Accelerator accelerator;
  torch::nn::Sequential net = piece_net();
  std::optional<accelerate::Prepared<torch::nn::Sequential>> model;
  std::optional<accelerate::PreparedOptimizer> optimizer;
  double norm = 0;
};

// Whether both have the same parameters. Collective; the same answer on all ranks.
inline bool agree(PieceTraining& own, PieceTraining& usual) {
  bool equal = std::abs(own.norm - usual.norm) <= 1e-5 * usual.norm;
  const auto values = own.accelerator.get_state_dict(*own.model);
  const auto expected = usual.accelerator.get_state_dict(*usual.model);
  if (own.accelerator.is_main_process()) {
    for (const auto& item : expected) {
      equal = equal && values[item.key()].allclose(item.value(), 1e-4, 1e-5);
    }
  }
  equal = own.accelerator.reduce(torch::tensor(equal ? 0 : 1)).item<int64_t>() == 0;
  own.accelerator.print(own.accelerator.strategy_name(), equal ? " agrees with " : " is not as ",
                        usual.accelerator.strategy_name(), " on ", own.accelerator.num_processes(),
                        " processes");
  return equal;
}

// What a program of these does: "save folder" trains, saves the state there and trains on, "resume
// folder" goes on from that state, on any number of processes. Returns the exit code.
inline int run_piece_training(int argc, char** argv,
                              const std::shared_ptr<accelerate::StrategyFactory>& strategy) {
  const bool saves = argc == 3 && std::string_view(argv[1]) == "save";
  if (argc != 3 || (!saves && std::string_view(argv[1]) != "resume")) return 2;
  const std::filesystem::path folder = argv[2];
  PieceTraining own(strategy);
  PieceTraining usual(accelerate::AutoStrategy{});
  usual.train(0, 2 * kSteps);
  if (saves) {
    own.train(0, kSteps);
    own.accelerator.save_state(folder / "state");
  } else {
    own.accelerator.load_state(folder / "state");
  }
  own.train(kSteps, 2 * kSteps);
  if (!agree(own, usual)) return 1;
  // The library's own strategy goes on from the pieces as well.
  PieceTraining whole(accelerate::AutoStrategy{});
  whole.accelerator.load_state(folder / "state");
  whole.train(kSteps, 2 * kSteps);
  if (!agree(whole, usual)) return 1;
  // A model that was saved is one like any other.
  own.accelerator.save_model(*own.model, folder / "model");
  auto loaded = piece_net();
  for (at::Tensor& parameter : loaded->parameters()) torch::nn::init::zeros_(parameter);
  accelerate::load_checkpoint_in_model(*loaded, folder / "model", {.strict = true});
  for (const auto& item : usual.net->named_parameters()) {
    if (!loaded->named_parameters()[item.key()].allclose(item.value(), 1e-4, 1e-5)) return 1;
  }
  return 0;
}

}  // namespace strategies
