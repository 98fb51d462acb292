// Trainings whose state is sharded, and the same by one process and by DDP.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "multiproc/training.h"

namespace accelerate::test {

// Rows of all ranks together: 1, 2, 3 and 4 ranks have as many each.
inline constexpr int64_t kZeroRows = 12;

// Options for what the odd net leaves unused.
inline DdpOptions with_unused() { return {.find_unused_parameters = true}; }

inline AcceleratorOptions replicated() {
  AcceleratorOptions options = on_cpu(with_unused());
  options.scheduler.pace = SchedulerPace::kPerOptimizerStep;
  return options;
}
inline AcceleratorOptions zero(int stage, const DdpOptions& ddp = {}) {
  AcceleratorOptions options = on_cpu();
  options.strategy = ZeroOptions{.stage = stage, .ddp = ddp};
  options.scheduler.pace = SchedulerPace::kPerOptimizerStep;
  return options;
}

inline std::vector<int> zero_stages() { return {1, 2, 3}; }

// Everything that parameters can be: tied, frozen, unused, of two types, of other strides, without
// dimensions, used twice in a pass; a submodule that two have; buffers. Matrices are long enough to
// be cut between ranks.
struct OddNet : Net {
  struct Half : torch::nn::Module {
    explicit Half(at::Tensor shared) : weight(register_parameter("weight", std::move(shared))) {}
    at::Tensor weight;
  };

  OddNet()
      : encoder(register_module("encoder", std::make_shared<Half>(torch::randn({6, 50}) * 0.3))),
        decoder(register_module("decoder", std::make_shared<Half>(encoder->weight))),
        shared(register_module("shared", torch::nn::Linear(6, 6))),
        frozen(register_module("frozen", torch::nn::Linear(6, 6))),
        unused(register_module("unused", torch::nn::Linear(6, 40))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))),
        conv(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 30, {1, 3})))),
        head(register_module("head", torch::nn::Linear(30 * 4, 3))),
        factor(register_parameter("factor", torch::full({}, 0.5))),
        wide(register_parameter("wide", torch::randn({3, 3}, at::kDouble))),
        scale(register_buffer("scale", torch::tensor({1.5}))),
        calls(register_buffer("calls", torch::zeros({1}, at::kLong))) {
    same_shared = register_module("same_shared", shared);
    for (at::Tensor& parameter : frozen->parameters()) parameter.set_requires_grad(false);
    conv->weight.set_data(conv->weight.detach().transpose(0, 3).contiguous().transpose(0, 3));
    if (!has_empty_weights(*this)) to(test_device());  // which tensors without memory cannot follow
  }
  at::Tensor forward(at::Tensor input) override {
    at::Tensor hidden = torch::tanh(input.matmul(encoder->weight)).matmul(decoder->weight.t());
    hidden = same_shared(torch::tanh(shared(hidden))) + frozen(input) * factor;
    if (is_training()) calls.add_(1);
    hidden = norm(hidden) * factor + scale;
    const at::Tensor seen = torch::relu(conv(hidden.view({-1, 1, 1, 6}))).flatten(1);
    return head(seen).to(at::kDouble).matmul(wide).to(at::kFloat);
  }

  std::shared_ptr<Half> encoder, decoder;
  torch::nn::Linear shared, same_shared = nullptr, frozen, unused;
  torch::nn::LayerNorm norm;
  torch::nn::Conv2d conv;
  torch::nn::Linear head;
  at::Tensor factor, wide, scale, calls;
};

// Each tensor once.
inline std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    bool known = false;
    for (const at::Tensor& other : result) known = known || other.is_same(tensor);
    if (!known) result.push_back(tensor);
  }
  return result;
}

// Their values, of parameters that live in shards too: flat() reads memory where it can.
// Collective.
inline std::vector<double> values_of(std::vector<at::Tensor> parameters) {
  for (at::Tensor& parameter : parameters) parameter = parameter.detach().clone();
  return flat(parameters);
}

// Of two groups: matrices decay, the rest does not and has another rate.
template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> grouped(const std::vector<at::Tensor>& parameters,
                                                 Options options) {
  std::vector<at::Tensor> matrices, rest;
  for (const at::Tensor& parameter : parameters) {
    (parameter.dim() >= 2 ? matrices : rest).push_back(parameter);
  }
  auto plain = std::make_unique<Options>(options.weight_decay(0));
  plain->set_lr(plain->get_lr() / 2);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices, std::make_unique<Options>(options.weight_decay(0.1)));
  groups.emplace_back(rest, std::move(plain));
  return std::make_unique<Optimizer>(groups, options);
}

// Counts signs alone: an optimizer of a user, element by element.
struct SignDescent : torch::optim::Optimizer {
  struct Options : torch::optim::OptimizerCloneableOptions<Options> {
    explicit Options(double lr) : rate(lr) {}
    double get_lr() const override { return rate; }
    void set_lr(double lr) override { rate = lr; }
    Options& weight_decay(double value) {
      decay = value;
      return *this;
    }
    double rate, decay = 0;
  };
  SignDescent(const std::vector<torch::optim::OptimizerParamGroup>& groups, const Options& options)
      : Optimizer(groups, std::make_unique<Options>(options)) {}
  at::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    for (auto& group : param_groups()) {
      const auto& options = static_cast<const Options&>(group.options());
      for (at::Tensor& parameter : group.params()) {
        if (!parameter.grad().defined()) continue;
        parameter.mul_(1 - options.rate * options.decay);
        parameter.sub_(parameter.grad().sign(), options.rate);
      }
    }
    return {};
  }
};

inline std::unique_ptr<torch::optim::Optimizer> zero_optimizer(
    const std::string& name, const std::vector<at::Tensor>& parameters) {
  namespace optim = torch::optim;
  if (name == "sgd") {
    return grouped<optim::SGD>(parameters, optim::SGDOptions(0.1).momentum(0.9));
  }
  if (name == "adam") {
    return grouped<optim::Adam>(parameters, optim::AdamOptions(0.01).amsgrad(true));
  }
  if (name == "adagrad") return grouped<optim::Adagrad>(parameters, optim::AdagradOptions(0.05));
  if (name == "rmsprop") {
    return grouped<optim::RMSprop>(parameters,
                                   optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
  }
  if (name == "sign") return grouped<SignDescent>(parameters, SignDescent::Options(0.01));
  return grouped<optim::AdamW>(parameters, optim::AdamWOptions(0.01));
}

inline std::shared_ptr<OddNet> odd_net() {
  torch::manual_seed(11);
  return std::make_shared<OddNet>();
}

struct ZeroRecipe {
  std::string optimizer = "adamw";
  int forwards = 1;  // before each backward pass
  double max_norm = 0;
  double max_value = 0;
  bool weighted = false;
};

inline AcceleratorOptions in_windows(AcceleratorOptions options, int64_t steps) {
  options.gradient_accumulation.steps = steps;
  return options;
}

// Plain torch on all rows.
inline std::vector<double> train_alone(const ZeroRecipe& recipe, int steps) {
  const auto net = odd_net();
  const auto optimizer = zero_optimizer(recipe.optimizer, distinct(net->parameters()));
  Scheduler schedule =
      get_scheduler("linear", *optimizer, {.warmup_steps = 2, .training_steps = 50});
  for (int step = 0; step < steps; ++step) {
    const StepData data = data_of_step(step, kZeroRows);
    at::Tensor loss;
    for (int i = 0; i < recipe.forwards; ++i) {
      const at::Tensor one = loss_of(net->forward(data.input * (1 + i)), data.target);
      loss = loss.defined() ? loss + one : one;
    }
    loss.backward();
    const std::vector<at::Tensor> parameters = distinct(net->parameters());
    if (recipe.max_norm > 0) torch::nn::utils::clip_grad_norm_(parameters, recipe.max_norm);
    if (recipe.max_value > 0) torch::nn::utils::clip_grad_value_(parameters, recipe.max_value);
    optimizer->step();
    schedule.step();
    optimizer->zero_grad();
  }
  return values_of(distinct(net->parameters()));
}

struct ZeroLoop {
  explicit ZeroLoop(const AcceleratorOptions& options, ZeroRecipe what = {},
                    std::shared_ptr<OddNet> own = odd_net())
      : accelerator(options), recipe(std::move(what)), net(std::move(own)) {
    optimizer_ = zero_optimizer(recipe.optimizer, distinct(net->parameters()));
    Scheduler schedule =
        get_scheduler("linear", *optimizer_, {.warmup_steps = 2, .training_steps = 50});
    model.emplace(accelerator.prepare(net));
    optimizer.emplace(accelerator.prepare(*optimizer_));
    scheduler.emplace(accelerator.prepare(schedule));
  }

  // The micro-batch of this number, of which each rank has its rows.
  void micro_batch(int number) {
    const int rank = accelerator.process_index();
    const int64_t rows = kZeroRows / accelerator.num_processes();
    const StepData data = data_of_step(number, kZeroRows);
    const auto window = accelerator.accumulate(*model);
    at::Tensor loss;
    for (int i = 0; i < recipe.forwards; ++i) {
      const at::Tensor one = loss_of((*model)(rows_of(data.input, rank, rows) * (1 + i)),
                                     rows_of(data.target, rank, rows));
      loss = loss.defined() ? loss + one : one;
    }
    if (recipe.weighted) {
      accelerator.backward(loss, {.weight = static_cast<double>(rows * (1 + number % 3))});
    } else {
      accelerator.backward(loss);
    }
    if (accelerator.sync_gradients()) clip();
    optimizer->step();
    scheduler->step();
    optimizer->zero_grad();
  }
  ZeroLoop& train(int first, int last) {
    for (int number = first; number < last; ++number) micro_batch(number);
    return *this;
  }
  std::vector<double> values() const { return values_of(distinct(net->parameters())); }

  Accelerator accelerator;
  ZeroRecipe recipe;
  std::shared_ptr<OddNet> net;
  std::vector<double> norms;

 private:
  void clip() {
    if (recipe.max_norm > 0) {
      norms.push_back(
          accelerator.clip_grad_norm_(net->parameters(), recipe.max_norm).item<double>());
    }
    if (recipe.max_value > 0) accelerator.clip_grad_value_(net->parameters(), recipe.max_value);
  }

  std::unique_ptr<torch::optim::Optimizer> optimizer_;

 public:
  std::optional<PreparedModel<OddNet>> model;
  std::optional<PreparedOptimizer> optimizer;
  std::optional<PreparedScheduler> scheduler;
};

}  // namespace accelerate::test
