// What the exchange of gradients keeps from pass to pass, for checkpoints.
#include "strategy/ddp/ddp_model.h"
#include "strategy/ddp/power_sgd.h"

namespace accelerate {

ExchangeState DdpModel::state() const {
  if (!reducer_) return {};
  return {.gradient_order = reducer_->gradient_order(),
          .follows_order = reducer_->follows_gradient_order(),
          .own = hook_ != nullptr ? hook_->state() : StateDict{}};
}

std::string DdpModel::check(const ExchangeState& state) const {
  if (state.own.size() == 0) return {};
  if (hook_ == nullptr) return "what PowerSGD kept: this program does not use it";
  return hook_->check(state.own);
}

void DdpModel::restore(const ExchangeState& state) {
  if (!reducer_) return;
  reducer_->set_gradient_order(state.gradient_order);
  // Gradients that are there would become part of the buckets, which rounds their mean in another
  // way.
  if (state.follows_order) {
    communicator_->guard("order of gradients", [&] { reducer_->rebuild_buckets(); });
  }
  if (hook_ != nullptr && state.own.size() > 0) {
    hook_->load(state.own, parameters_.tensors[0].device());
  }
}

}  // namespace accelerate
