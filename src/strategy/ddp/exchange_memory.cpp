// What the exchange of gradients keeps from pass to pass, for checkpoints.
#include "strategy/ddp/ddp_model.h"
#include "strategy/ddp/power_sgd.h"

namespace accelerate {

std::vector<int64_t> DdpModel::gradient_order() const {
  return reducer_ ? reducer_->gradient_order() : std::vector<int64_t>{};
}

void DdpModel::set_gradient_order(const std::vector<int64_t>& order) {
  if (reducer_) reducer_->set_gradient_order(order);
}

bool DdpModel::buckets_follow_order() const {
  return reducer_ != nullptr && reducer_->follows_gradient_order();
}

void DdpModel::let_buckets_follow_order() {
  if (!reducer_) return;
  communicator_->guard("order of gradients", [&] { reducer_->rebuild_buckets(); });
}

StateDict DdpModel::hook_state() const { return hook_ != nullptr ? hook_->state() : StateDict{}; }

std::string DdpModel::check_hook_state(const StateDict& state) const {
  return hook_ != nullptr ? hook_->check(state) : std::string();
}

void DdpModel::load_hook_state(const StateDict& state) {
  if (hook_ != nullptr) hook_->load(state, parameters_.tensors[0].device());
}

}  // namespace accelerate
