#include "strategy/ddp/loose_parameters.h"

#include <torch/nn/module.h>

#include <unordered_set>
#include <utility>

#include "comm/groups/communicator_impl.h"

namespace accelerate {
namespace {

void erase_those_of(const torch::nn::Module& module, NamedValues& values) {
  if (values.empty()) return;
  std::unordered_set<const void*> held;
  for (const at::Tensor& own : module.parameters()) held.insert(own.unsafeGetTensorImpl());
  std::erase_if(values,
                [&](const auto& item) { return held.contains(item.second.unsafeGetTensorImpl()); });
}

}  // namespace

void LooseParameters::update(const std::vector<at::Tensor>& parameters,
                             const std::vector<const torch::nn::Module*>& held_by) {
  NamedValues added;
  for (; known_ < parameters.size(); ++known_) {
    added.emplace_back(
        "parameter " + std::to_string(known_) + " of optimizer " + std::to_string(number_),
        parameters[known_]);
  }
  for (const torch::nn::Module* module : held_by) erase_those_of(*module, added);
  tensors_.insert(tensors_.end(), added.begin(), added.end());
}

void LooseParameters::remove_those_of(const torch::nn::Module& module) {
  erase_those_of(module, tensors_);
}

ErrorInfo LooseParameters::error(const std::string& text, const char* where) {
  return {.what = "the ranks train apart: " + text +
                  ", and no prepared model holds this parameter, so nobody averages its gradients",
          .where = where,
          .hint =
              "give the model of these parameters to prepare() too and call what it returns; or "
              "average their gradients by accelerator.reduce() before step(). "
              "{.ddp = {.check_replicas = false}} switches this check off"};
}

std::string LooseParameters::key(const std::string& kind) const {
  return "loose/" + std::to_string(number_) + "/" + std::to_string(steps_) + "/" + kind;
}

void LooseParameters::before_step() {
  ++steps_;
  ends_ = 0;
  if (tensors_.empty() || compared_gradients_) {
    return;
  }
  NamedValues gradients;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.grad().defined()) gradients.emplace_back(name, tensor.grad());
  }
  if (gradients.empty()) return;
  compared_gradients_ = true;
  const auto found = ReplicaDigest::of(gradients).compare_with_first(*ranks_, key("gradients"));
  if (!found || found->first.is_rounding) return;
  const std::string what = "the gradient of " + found->first.parameter;
  comm::impl_of(*ranks_).refuse_on_all(
      error(difference_text(what, found->second, ranks_->rank()), "step"));
}

void LooseParameters::require_same_assigned(const NamedValues& gradients) {
  if (gradients.empty()) return;
  compared_assigned_ = true;
  const auto found = ReplicaDigest::of(gradients).compare_with_first(*ranks_, key("assigned"));
  if (!found || found->first.is_rounding) return;
  const std::string what = "the gradient of " + found->first.parameter;
  comm::impl_of(*ranks_).refuse_on_all(
      {.what = "the ranks train apart: " + difference_text(what, found->second, ranks_->rank()) +
               ", and accelerator.backward(loss) has not averaged it since the last step",
       .where = "step",
       .hint = "call accelerator.backward(loss), or average gradients that you assign by "
               "accelerator.reduce(); {.ddp = {.check_replicas = false}} switches this check off"});
}

void LooseParameters::at_end_of_pass(const char* where) {
  if (tensors_.empty()) return;
  const std::string end = key(std::to_string(ends_++));
  const auto found = ReplicaDigest::of(tensors_).compare_with_first(*ranks_, end);
  if (!found) return;
  const auto& [difference, first] = *found;
  const std::string text = difference_text(difference.parameter, first, ranks_->rank());
  if (!difference.is_rounding) comm::impl_of(*ranks_).refuse_on_all(error(text, where));
  if (!std::exchange(told_of_rounding_, true)) warn_of_rounding(text);
}

}  // namespace accelerate
