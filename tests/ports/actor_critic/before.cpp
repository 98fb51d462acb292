// Proximal policy optimization: an actor that walks to a goal, and a critic that values where it
// stands. Actions, starting points and the order of the updates are drawn in the loop.
//   usage: PROGRAM FOLDER [SEED [ROUND TO GO ON FROM]]
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

constexpr int64_t kWalkers = 8;
constexpr int64_t kSteps = 16;
constexpr int64_t kRounds = 6;
constexpr int64_t kUpdates = 4;
constexpr int64_t kMiniBatch = 32;
constexpr double kDiscount = 0.9;
constexpr double kClip = 0.2;

struct ActorCriticImpl : torch::nn::Module {
  ActorCriticImpl()
      : actor(torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 5)),
        critic(torch::nn::Linear(2, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1)) {
    register_module("actor", actor);
    register_module("critic", critic);
  }

  // An action for each state, and how likely it was.
  std::tuple<torch::Tensor, torch::Tensor> act(torch::Tensor states) {
    const auto log_probs = torch::log_softmax(actor->forward(states), 1);
    const auto actions = log_probs.exp().multinomial(1);
    return {actions, log_probs.gather(1, actions)};
  }
  // How likely these actions are now, the entropy of all of them, and what the states are worth.
  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> evaluate(torch::Tensor states,
                                                                   torch::Tensor actions) {
    const auto log_probs = torch::log_softmax(actor->forward(states), 1);
    const auto entropy = -(log_probs.exp() * log_probs).sum(1, /*keepdim=*/true);
    return {log_probs.gather(1, actions), entropy, critic->forward(states)};
  }

  torch::nn::Sequential actor;
  torch::nn::Sequential critic;
};
TORCH_MODULE(ActorCritic);

// Walkers in a plane; the goal is where both coordinates are 0. An action is a step to one of the
// four sides, or none.
struct Plane {
  explicit Plane(torch::Device device)
      : moves((torch::tensor({0, 0, 1, 0, -1, 0, 0, 1, 0, -1}, torch::kFloat) * 0.2)
                  .view({5, 2})
                  .to(device)) {}

  void reset() { states = torch::rand({kWalkers, 2}, moves.device()) * 2 - 1; }
  // The reward is how much nearer the goal has come.
  torch::Tensor step(torch::Tensor actions) {
    const auto before = states.norm(2, 1, /*keepdim=*/true);
    states = states + moves.index_select(0, actions.flatten());
    return before - states.norm(2, 1, /*keepdim=*/true);
  }

  torch::Tensor moves;
  torch::Tensor states;
};

// The numbers of a tensor, each after a blank.
std::string written(const torch::Tensor& numbers) {
  std::ostringstream text;
  text.precision(9);
  for (int64_t i = 0; i < numbers.size(0); ++i) text << ' ' << numbers[i].item<double>();
  return text.str();
}

void train(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : ".";
  const uint64_t seed = argc > 2 ? std::stoul(argv[2]) : 1;
  const int64_t restore = argc > 3 ? std::stol(argv[3]) : 0;
  torch::manual_seed(seed);
  torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);

  ActorCritic model;
  model->to(device);
  torch::optim::Adam optimizer(model->parameters(), 1e-2);
  Plane plane(device);

  if (restore > 0) {
    torch::load(model, folder + "/model-" + std::to_string(restore) + ".pt");
    torch::load(optimizer, folder + "/optimizer-" + std::to_string(restore) + ".pt");
  }

  for (int64_t round = restore + 1; round <= kRounds; ++round) {
    std::vector<torch::Tensor> states, actions, log_probs, rewards;
    {
      torch::NoGradGuard no_grad;
      plane.reset();
      for (int64_t i = 0; i < kSteps; ++i) {
        states.push_back(plane.states);
        auto [action, log_prob] = model->act(plane.states);
        actions.push_back(action);
        log_probs.push_back(log_prob);
        rewards.push_back(plane.step(action));
      }
    }
    std::vector<torch::Tensor> returns(rewards);
    for (int64_t i = kSteps - 2; i >= 0; --i) returns[i] = rewards[i] + kDiscount * returns[i + 1];
    const auto all_states = torch::cat(states);
    const auto all_actions = torch::cat(actions);
    const auto all_log_probs = torch::cat(log_probs);
    const auto all_returns = torch::cat(returns);

    torch::Tensor loss;
    for (int64_t update = 0; update < kUpdates; ++update) {
      const auto chosen = torch::randperm(kSteps * kWalkers, device).slice(0, 0, kMiniBatch);
      const auto state = all_states.index_select(0, chosen);
      const auto action = all_actions.index_select(0, chosen);
      const auto [log_prob, entropy, value] = model->evaluate(state, action);
      const auto advantage = all_returns.index_select(0, chosen) - value.detach();
      const auto ratio = (log_prob - all_log_probs.index_select(0, chosen)).exp();
      const auto gain =
          torch::min(ratio * advantage, ratio.clamp(1 - kClip, 1 + kClip) * advantage);
      const auto error = (all_returns.index_select(0, chosen) - value).square();
      loss = (0.5 * error - gain - 0.01 * entropy).mean();
      optimizer.zero_grad();
      loss.backward();
      torch::nn::utils::clip_grad_norm_(model->parameters(), 0.5);
      optimizer.step();
    }

    const auto gained = torch::cat(rewards, 1).sum(1).mean();
    auto shown = torch::stack({loss.detach(), gained});
    std::cout << "round " << round << written(shown) << std::endl;
    torch::save(model, folder + "/model-" + std::to_string(round) + ".pt");
    torch::save(optimizer, folder + "/optimizer-" + std::to_string(round) + ".pt");
  }
}

int main(int argc, char** argv) {
  train(argc, argv);
  return 0;
}
