#include "optim/optimizer_placement.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace accelerate {
namespace {

using torch::optim::OptimizerParamState;

void move(at::Tensor& tensor, c10::Device device) {
  if (tensor.defined()) tensor = tensor.to(device);
}

template <class Range>
void move_all(Range& tensors, c10::Device device) {
  for (at::Tensor& tensor : tensors) move(tensor, device);
}

template <class State>
void move_moments(State& state, c10::Device device) {
  move(state.exp_avg(), device);
  move(state.exp_avg_sq(), device);
  move(state.max_exp_avg_sq(), device);
}

void move_state(OptimizerParamState& any, c10::Device device) {
  namespace optim = torch::optim;
  if (auto* adam = dynamic_cast<optim::AdamParamState*>(&any)) return move_moments(*adam, device);
  if (auto* adamw = dynamic_cast<optim::AdamWParamState*>(&any))
    return move_moments(*adamw, device);
  if (auto* sgd = dynamic_cast<optim::SGDParamState*>(&any))
    return move(sgd->momentum_buffer(), device);
  if (auto* adagrad = dynamic_cast<optim::AdagradParamState*>(&any))
    return move(adagrad->sum(), device);
  if (auto* rmsprop = dynamic_cast<optim::RMSpropParamState*>(&any)) {
    move(rmsprop->square_avg(), device);
    move(rmsprop->momentum_buffer(), device);
    move(rmsprop->grad_avg(), device);
    return;
  }
  if (auto* lbfgs = dynamic_cast<optim::LBFGSParamState*>(&any)) {
    move(lbfgs->d(), device);
    move(lbfgs->H_diag(), device);
    move(lbfgs->prev_flat_grad(), device);
    move_all(lbfgs->old_dirs(), device);
    move_all(lbfgs->old_stps(), device);
    move_all(lbfgs->ro(), device);
    if (lbfgs->al()) move_all(*lbfgs->al(), device);
  }
}

}  // namespace

void place_optimizer_state(torch::optim::Optimizer& optimizer) {
  auto& states = optimizer.state();
  for (auto& group : optimizer.param_groups()) {
    for (at::Tensor& parameter : group.params()) {
      const auto found = states.find(parameter.unsafeGetTensorImpl());
      if (found != states.end()) move_state(*found->second, parameter.device());
    }
  }
}

}  // namespace accelerate
