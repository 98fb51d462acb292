// An actor and a critic learn to walk to the right end of a corridor. Every rank plays games of its
// own, because what a rank draws inside its loop differs from rank to rank, and the update is that
// of all games together. The loss is made of several members of the network: call() runs them as
// forward() runs, under the strategy and in mixed precision.
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#include "../command_line.h"

constexpr int64_t kCells = 7;
constexpr int64_t kWalkers = 16;
constexpr int64_t kMoves = 10;
constexpr int kUpdates = 60;
constexpr double kDiscount = 0.95;

struct ActorCriticImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& states) {  // how good each move looks
    return actor(torch::tanh(trunk(states)));
  }
  torch::Tensor value(const torch::Tensor& states) {
    return critic(torch::tanh(trunk(states))).squeeze(-1);
  }
  torch::Tensor entropy(const torch::Tensor& states) {
    const auto logs = torch::log_softmax(forward(states), -1);
    return -(logs.exp() * logs).sum(-1).mean();
  }
  torch::Tensor log_probability(const torch::Tensor& states, const torch::Tensor& moves) {
    return torch::log_softmax(forward(states), -1).gather(-1, moves.unsqueeze(-1)).squeeze(-1);
  }

  torch::nn::Linear trunk = register_module("trunk", torch::nn::Linear(kCells, 16));
  torch::nn::Linear actor = register_module("actor", torch::nn::Linear(16, 2));
  torch::nn::Linear critic = register_module("critic", torch::nn::Linear(16, 1));
};
TORCH_MODULE(ActorCritic);

// Games of all walkers of one rank: [moves, walkers, ...].
struct Games {
  torch::Tensor states, moves, returns;
};

// `choose` gives the move of each walker, 0 to the left or 1 to the right, from what it sees. A
// move that ends in the last cell earns 1.
template <class Choose>
Games play(Choose choose, c10::Device device) {
  auto cells = torch::full({kWalkers}, kCells / 2, torch::dtype(torch::kLong).device(device));
  std::vector<torch::Tensor> states, moves, rewards;
  for (int64_t move = 0; move < kMoves; ++move) {
    states.push_back(torch::one_hot(cells, kCells).to(torch::kFloat));
    moves.push_back(choose(states.back()));
    cells = (cells + 2 * moves.back() - 1).clamp(0, kCells - 1);
    rewards.push_back((cells == kCells - 1).to(torch::kFloat));
  }
  auto returns = rewards;
  for (int64_t move = kMoves - 1; move-- > 0;) {
    returns[move] = rewards[move] + kDiscount * returns[move + 1];
  }
  return {torch::stack(states), torch::stack(moves), torch::stack(returns)};
}

void train() {
  accelerate::Accelerator accelerator;
  torch::manual_seed(1);  // the same weights on all ranks
  ActorCritic net;
  torch::optim::Adam adam(net->parameters(), 0.02);
  auto [model, optimizer] = accelerator.prepare(net, adam);

  const auto draw = [&](const torch::Tensor& states) {
    const torch::NoGradGuard no_grad;
    return torch::softmax(model(states), -1).multinomial(1).squeeze(-1);
  };
  const auto best = [&](const torch::Tensor& states) {
    const torch::NoGradGuard no_grad;
    return model(states).argmax(-1);
  };

  bool differ = accelerator.num_processes() == 1;
  for (int update = 0; update < kUpdates; ++update) {
    const Games games = play(draw, accelerator.device());
    if (update == 0 && !differ) {
      const auto of_all = accelerator.gather(games.moves.unsqueeze(0));
      differ = !of_all[0].equal(of_all[1]);
    }
    const auto loss = model.call([&](ActorCritic& own) {
      const auto error = games.returns - own->value(games.states);
      const auto gain = own->log_probability(games.states, games.moves) * error.detach();
      return -gain.mean() + 0.5 * error.square().mean() - 0.01 * own->entropy(games.states);
    });
    optimizer.zero_grad();
    accelerator.backward(loss);
    optimizer.step();
  }
  const double earned = play(best, accelerator.device()).returns[0].mean().item<double>();
  accelerator.print("earns ", earned, " after ", kUpdates,
                    " updates, ranks played games of their own: ", differ ? "yes" : "no");
}

int main(int argc, char** argv) {
  const Words none(argc, argv, "", "An actor and a critic that learn to walk to the right.");
  return accelerate::run(train);
}
