// Small trainings for tests of the state of optimizers.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace accelerate::test {

using OptimizerPointer = std::shared_ptr<torch::optim::Optimizer>;

// Three parameters in two groups (one for LBFGS, which takes no more) and an optimizer over them.
struct Training {
  std::vector<at::Tensor> parameters;
  OptimizerPointer optimizer;

  void step() {
    optimizer->step([&] {
      optimizer->zero_grad();
      at::Tensor loss = parameters[0].pow(2).sum() + (parameters[1] - 3).pow(4).mean() +
                        (parameters[2] * parameters[0].sum()).sin().sum();
      loss.backward();
      return loss;
    });
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
};

inline std::vector<at::Tensor> some_parameters(int seed) {
  torch::manual_seed(seed);
  const auto options = torch::TensorOptions().requires_grad(true);
  return {torch::randn({3, 4}, options), torch::randn({5}, options), torch::randn({2, 2}, options)};
}

template <class Optimizer, class Options>
Training make_training(const Options& first, const Options& second, int seed) {
  Training training{.parameters = some_parameters(seed), .optimizer = nullptr};
  const auto& all = training.parameters;
  const std::vector<torch::optim::OptimizerParamGroup> groups{
      {{all[0], all[1]}, std::make_unique<Options>(first)},
      {{all[2]}, std::make_unique<Options>(second)}};
  training.optimizer = std::make_shared<Optimizer>(groups, first);
  return training;
}

struct TrainingKind {
  std::string name;
  std::function<Training(int seed)> make;   // as it is saved
  std::function<Training(int seed)> other;  // with other options, to be loaded into
};

inline std::vector<TrainingKind> training_kinds() {
  namespace optim = torch::optim;
  using optim::AdagradOptions, optim::AdamOptions, optim::AdamWOptions, optim::RMSpropOptions,
      optim::SGDOptions;
  std::vector<TrainingKind> kinds;
  const auto add = [&]<class Optimizer, class Options>(std::type_identity<Optimizer>,
                                                       const std::string& name, Options first,
                                                       Options second, Options other) {
    kinds.push_back(
        {.name = name,
         .make = [=](int seed) { return make_training<Optimizer>(first, second, seed); },
         .other = [=](int seed) { return make_training<Optimizer>(other, other, seed); }});
  };
  add(std::type_identity<optim::SGD>(), "Sgd",
      SGDOptions(0.01).momentum(0.9).nesterov(true).weight_decay(0.1),
      SGDOptions(0.02).momentum(0.5).dampening(0.1), SGDOptions(0.5));
  add(std::type_identity<optim::SGD>(), "SgdWithoutMomentum", SGDOptions(0.01), SGDOptions(0.02),
      SGDOptions(0.5).momentum(0.9));
  add(std::type_identity<optim::Adam>(), "Adam",
      AdamOptions(0.01).betas({0.8, 0.95}).weight_decay(0.1), AdamOptions(0.02).eps(1e-6),
      AdamOptions(0.5).amsgrad(true));
  add(std::type_identity<optim::AdamW>(), "AdamW", AdamWOptions(0.01).weight_decay(0.2),
      AdamWOptions(0.02).betas({0.5, 0.6}), AdamWOptions(0.5));
  add(std::type_identity<optim::AdamW>(), "AdamWAmsgrad", AdamWOptions(0.01).amsgrad(true),
      AdamWOptions(0.02).amsgrad(true), AdamWOptions(0.5));
  add(std::type_identity<optim::Adagrad>(), "Adagrad",
      AdagradOptions(0.1).lr_decay(0.01).weight_decay(0.1), AdagradOptions(0.2).eps(1e-6),
      AdagradOptions(0.5));
  add(std::type_identity<optim::RMSprop>(), "RmspropCentered",
      RMSpropOptions(0.01).momentum(0.9).centered(true).alpha(0.9),
      RMSpropOptions(0.02).momentum(0.1).centered(true), RMSpropOptions(0.5));
  add(std::type_identity<optim::RMSprop>(), "Rmsprop", RMSpropOptions(0.01).weight_decay(0.1),
      RMSpropOptions(0.02).eps(1e-6), RMSpropOptions(0.5).centered(true));
  const auto lbfgs = [](optim::LBFGSOptions options) {
    return [options](int seed) {
      Training training{.parameters = some_parameters(seed), .optimizer = nullptr};
      training.optimizer = std::make_shared<optim::LBFGS>(training.parameters, options);
      return training;
    };
  };
  kinds.push_back({.name = "Lbfgs",
                   .make = lbfgs(optim::LBFGSOptions(0.1).max_iter(3).history_size(5)),
                   .other = lbfgs(optim::LBFGSOptions(0.5))});
  kinds.push_back(
      {.name = "LbfgsWithLineSearch",
       .make = lbfgs(optim::LBFGSOptions(0.1).max_iter(3).line_search_fn("strong_wolfe")),
       .other = lbfgs(optim::LBFGSOptions(0.5))});
  return kinds;
}

// The values of `source`, without a trace of how they came about.
inline void copy_parameters(const Training& source, Training& target) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < source.parameters.size(); ++i) {
    target.parameters[i].copy_(source.parameters[i]);
  }
}

}  // namespace accelerate::test
