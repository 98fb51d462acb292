// What tests of steps beside the prepared optimizer share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "multiproc/accumulation.h"

namespace accelerate::test {

struct OwnStepsOn : AccumulationOn {};

inline constexpr const char* kScaledStep =
    "step() was called on the optimizer given to prepare() while its gradients were still "
    "multiplied by the scale of the loss";

inline AcceleratorOptions scaled(double scale = 1024) {
  AcceleratorOptions options = on_cpu();
  options.mixed_precision = "fp16";
  options.grad_scaler.init_scale = scale;
  return options;
}

inline const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names{"sgd",   "decay",   "momentum", "adam",
                                              "adamw", "adagrad", "rmsprop"};
  return names;
}

inline std::shared_ptr<torch::optim::Optimizer> optimizer_named(const std::string& name,
                                                                const std::vector<at::Tensor>& of) {
  namespace optim = torch::optim;
  if (name == "decay") {
    return std::make_shared<optim::SGD>(of, optim::SGDOptions(0.1).weight_decay(0.3));
  }
  if (name == "momentum") {
    return std::make_shared<optim::SGD>(of, optim::SGDOptions(0.1).momentum(0.9));
  }
  if (name == "adam") return std::make_shared<optim::Adam>(of, 0.1);
  if (name == "adamw") return std::make_shared<optim::AdamW>(of, 0.1);
  if (name == "adagrad") return std::make_shared<optim::Adagrad>(of, 0.1);
  if (name == "rmsprop") return std::make_shared<optim::RMSprop>(of, 0.1);
  return std::make_shared<optim::SGD>(of, 0.1);
}

// A prepared model and optimizer, beside what they were made of.
struct Prepared {
  explicit Prepared(const AcceleratorOptions& options, const std::string& name = "sgd")
      : accelerator(options),
        net(fresh_net()),
        own(optimizer_named(name, net->parameters())),
        model(accelerator.prepare(net)),
        optimizer(accelerator.prepare(own)) {}

  void backward(double factor = 1) {
    const StepData data = data_of_step(1, 2);
    accelerator.backward(loss_of(model(data.input), data.target) * factor);
  }
  void step() {
    backward();
    optimizer.step();
    optimizer.zero_grad();
  }

  Accelerator accelerator;
  std::shared_ptr<Mlp> net;
  std::shared_ptr<torch::optim::Optimizer> own;
  PreparedModel<Mlp> model;
  PreparedOptimizer optimizer;
};

}  // namespace accelerate::test
