// A small model and its optimizer, prepared, beside what they were made of.
#pragma once

#include <memory>

#include "multiproc/training.h"

namespace accelerate::test {

// The same values whichever rank asks, and whenever.
inline std::shared_ptr<Mlp> fresh_net() {
  torch::manual_seed(7);
  return std::make_shared<Mlp>();
}

class PreparedMlp {
  // Destroyed last.
  std::unique_ptr<Accelerator> own_;

 public:
  explicit PreparedMlp(const AcceleratorOptions& options = on_cpu())
      : PreparedMlp(std::make_unique<Accelerator>(options)) {}
  // One of several of this accelerator, which must outlive it.
  explicit PreparedMlp(Accelerator& shared)
      : accelerator(shared),
        sgd(net->parameters(), 0.1),
        model(accelerator.prepare(net)),
        optimizer(accelerator.prepare(sgd)) {}

  at::Tensor loss(const StepData& data) { return loss_of(model(data.input), data.target); }
  void backward(const StepData& data) { accelerator.backward(loss(data)); }
  void step() {
    optimizer.step();
    optimizer.zero_grad();
  }
  void train(const StepData& data) {
    backward(data);
    step();
  }
  // The norm before, of the gradients of the model.
  double clip_norm(double most) {
    return accelerator.clip_grad_norm_(model.parameters(), most).item<double>();
  }
  std::vector<double> values() const { return flat(net->parameters()); }

  Accelerator& accelerator;
  std::shared_ptr<Mlp> net = fresh_net();
  torch::optim::SGD sgd;
  PreparedModel<Mlp> model;
  PreparedOptimizer optimizer;

 private:
  explicit PreparedMlp(std::unique_ptr<Accelerator> own) : PreparedMlp(*own) {
    own_ = std::move(own);
  }
};

}  // namespace accelerate::test
