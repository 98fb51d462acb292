// A loop of training, the same with flat parameters and without.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "multiproc/accumulation.h"
#include "residency/flat_unit.h"
#include "strategy/flat/flat_model.h"

namespace accelerate::test {

inline AcceleratorOptions without_flat(int64_t steps = 1) { return accumulating({.steps = steps}); }
inline AcceleratorOptions with_flat(const FlatOptions& flat_options, int64_t steps = 1) {
  AcceleratorOptions options = without_flat(steps);
  options.flat = flat_options;
  return options;
}
inline AcceleratorOptions flat_in_bf16(int64_t steps = 1) {
  AcceleratorOptions options = with_flat({}, steps);
  options.mixed_precision = MixedPrecision::kBf16;
  return options;
}

inline std::shared_ptr<torch::optim::Optimizer> optimizer_named(const std::string& name,
                                                                const std::vector<at::Tensor>& of) {
  using namespace torch::optim;
  if (name == "sgd") return std::make_shared<SGD>(of, SGDOptions(0.1).weight_decay(0.1));
  if (name == "momentum") {
    return std::make_shared<SGD>(of, SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
  }
  if (name == "adagrad") return std::make_shared<Adagrad>(of, AdagradOptions(0.05));
  if (name == "rmsprop") return std::make_shared<RMSprop>(of, RMSpropOptions(0.01));
  return std::make_shared<AdamW>(of, AdamWOptions(0.02).weight_decay(0.1));
}

// To the bit on CPUs, where both ways make the same calls of libtorch.
inline testing::AssertionResult alike(const std::vector<double>& one,
                                      const std::vector<double>& other) {
  return near(one, other, tests_on_gpu() ? 1e-4 : 0);
}

template <class Module>
const residency::FlatUnit& unit_of(const PreparedModel<Module>& model) {
  return *std::static_pointer_cast<FlatModel>(model.strategy())->unit();
}

// A model and its optimizer, prepared, beside what they were made of.
template <class Module>
struct FlatPrepared {
  FlatPrepared(const AcceleratorOptions& options, const std::string& optimizer_name,
               std::shared_ptr<Module> of)
      : accelerator(options),
        net(std::move(of)),
        own(optimizer_named(optimizer_name, net->parameters())),
        model(accelerator.prepare(net)),
        optimizer(accelerator.prepare(own)) {}

  void step() {
    optimizer.step();
    optimizer.zero_grad();
  }
  const residency::FlatUnit& unit() const { return unit_of(model); }
  const UnitReducer& reducer() const {
    return *std::static_pointer_cast<FlatModel>(model.strategy())->reducer();
  }
  std::vector<double> values() const { return flat(net->parameters()); }
  // The parameters as exactly as they are kept.
  std::vector<double> exact() const {
    std::vector<at::Tensor> masters;
    for (const at::Tensor& parameter : net->parameters()) {
      masters.push_back(model.strategy()->master_of(parameter));
    }
    return flat(masters);
  }

  Accelerator accelerator;
  std::shared_ptr<Module> net;
  std::shared_ptr<torch::optim::Optimizer> own;
  PreparedModel<Module> model;
  PreparedOptimizer optimizer;
};

// A net in training, all of whose steps are those of README.md.
struct FlatLoop : FlatPrepared<Mlp> {
  explicit FlatLoop(const AcceleratorOptions& options, const std::string& name = "adamw")
      : FlatPrepared(options, name, fresh_net()) {}

  // What this rank has of a micro-batch, and its loss.
  Sample batch(int number) {
    const StepData data = data_of_step(number, accelerator.num_processes() * kRows);
    const int rank = accelerator.process_index();
    return {.data = rows_of(data.input, rank), .target = rows_of(data.target, rank)};
  }
  at::Tensor loss(const Sample& of) { return loss_of(model(of.data), of.target); }
  at::Tensor loss(int number) { return loss(batch(number)); }
  void backward(int number) { accelerator.backward(loss(number)); }

  void micro_batch(int number) {
    const auto window = accelerator.accumulate(model);
    backward(number);
    if (accelerator.sync_gradients()) {
      norms.push_back(accelerator.clip_grad_norm_(model->parameters(), 0.5).item<double>());
    }
    step();
  }
  void train(int first, int last) {
    for (int i = first; i < last; ++i) micro_batch(i);
  }

  std::vector<double> norms;
};

}  // namespace accelerate::test
