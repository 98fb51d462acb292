// Trains by the strategy of sharded_optimizer_strategy.h and by the library's own, which make the
// same steps but for rounding: ends with 1 if not.
//   sharded_optimizer save folder     trains, saves the state there, trains on
//   sharded_optimizer resume folder   goes on from that state, on any number of processes
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sharded_optimizer_strategy.h"

namespace {

constexpr int kRows = 12;  // of all ranks together
constexpr int kSteps = 4;

struct Training {
  explicit Training(accelerate::StrategyOptions strategy)
      : accelerator({.cpu = true, .strategy = std::move(strategy)}) {
    torch::manual_seed(1);
    net->push_back(torch::nn::Linear(5, 7));
    net->push_back(torch::nn::Tanh());
    net->push_back(torch::nn::Linear(7, 3));
    model.emplace(accelerator.prepare(net));
    optimizer.emplace(accelerator.prepare(torch::optim::AdamW(net->parameters(), 0.05)));
  }

  // Each rank takes its rows of batches that are the same however many ranks there are.
  void train(int first, int last) {
    const int64_t rows = kRows / accelerator.num_processes();
    for (int step = first; step < last; ++step) {
      torch::manual_seed(100 + step);
      const at::Tensor inputs = torch::randn({kRows, 5});
      const at::Tensor own = inputs.narrow(0, accelerator.process_index() * rows, rows);
      accelerator.backward((*model)->forward(own).square().mean());
      norm = accelerator.clip_grad_norm_(net->parameters(), 0.5).item<double>();
      optimizer->step();
      optimizer->zero_grad();
    }
  }

  accelerate::Accelerator accelerator;
  torch::nn::Sequential net;
  std::optional<accelerate::Prepared<torch::nn::Sequential>> model;
  std::optional<accelerate::PreparedOptimizer> optimizer;
  double norm = 0;
};

bool agree(Training& own, Training& usual) {
  bool equal = std::abs(own.norm - usual.norm) <= 1e-5 * usual.norm;
  const std::vector<at::Tensor> expected = usual.net->parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    equal = equal && own.net->parameters()[i].allclose(expected[i], 1e-4, 1e-5);
  }
  own.accelerator.print(own.accelerator.strategy_name(), equal ? " agrees with " : " is not as ",
                        usual.accelerator.strategy_name(), " on ", own.accelerator.num_processes(),
                        " processes");
  return equal;
}

}  // namespace

int main(int argc, char** argv) {
  const bool saves = argc == 3 && std::string_view(argv[1]) == "save";
  if (argc != 3 || (!saves && std::string_view(argv[1]) != "resume")) return 2;
  const std::filesystem::path folder = argv[2];
  Training own(std::make_shared<strategies::ShardedOptimizerFactory>());
  Training usual(accelerate::AutoStrategy{});
  usual.train(0, 2 * kSteps);
  if (saves) {
    own.train(0, kSteps);
    own.accelerator.save_state(folder);
  } else {
    own.accelerator.load_state(folder);
  }
  own.train(kSteps, 2 * kSteps);
  if (!agree(own, usual)) return 1;
  // The library's own strategy goes on from the pieces as well.
  Training whole(accelerate::AutoStrategy{});
  whole.accelerator.load_state(folder);
  whole.train(kSteps, 2 * kSteps);
  return agree(whole, usual) ? 0 : 1;
}
