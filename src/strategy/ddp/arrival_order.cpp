#include "strategy/ddp/arrival_order.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace accelerate {
namespace {

std::optional<c10::Stream> stream_of(const std::vector<at::Tensor>& parameters) {
  if (parameters.empty() || parameters[0].device().is_cpu()) return std::nullopt;
  const c10::Device device = parameters[0].device();
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

ArrivalOrder::ArrivalOrder(std::vector<at::Tensor> parameters, std::vector<size_t> bucket_of,
                           size_t buckets, Calls calls)
    : parameters_(std::move(parameters)),
      bucket_of_(std::move(bucket_of)),
      sizes_(buckets, 0),
      calls_(std::move(calls)),
      came_(parameters_.size(), false),
      missing_(buckets, 0) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].requires_grad()) ++sizes_[bucket_of_[i]];
  }
  make_hooks();
}

void ArrivalOrder::make_hooks() {
  made_on_ = stream_of(parameters_);
  hooks_ = std::make_unique<compat::GradientHooks>(parameters_,
                                                   [this](size_t parameter) { came(parameter); });
}

void ArrivalOrder::hold_hooks(bool held) {
  const bool fit = !held || made_on_ == stream_of(parameters_);
  if (std::exchange(holds_hooks_, held) == held && fit) return;
  hooks_.reset();
  if (held) make_hooks();
}

void ArrivalOrder::arm(bool overlaps) {
  if (!holds_hooks_) make_hooks();  // on the nodes of this pass
  const std::lock_guard lock(mutex_);
  armed_ = true;
  overlaps_ = overlaps;
  reached_ = false;
  late_.reset();
  sent_ = overlapped_ = 0;
  came_.assign(came_.size(), false);
  missing_ = sizes_;
}

void ArrivalOrder::came(size_t parameter) {
  const std::lock_guard lock(mutex_);
  if (!armed_) return calls_.on_local_gradient();
  reached_ = true;
  const size_t bucket = bucket_of_[parameter];
  if (bucket < sent_) {
    if (!late_) late_ = parameter;
    return;
  }
  if (came_[parameter]) return;
  came_[parameter] = true;
  --missing_[bucket];
  if (!overlaps_) return;
  while (sent_ < missing_.size() && missing_[sent_] == 0) calls_.send(sent_++);
}

ArrivalOrder::End ArrivalOrder::finish() {
  if (!holds_hooks_) hooks_.reset();
  const std::lock_guard lock(mutex_);
  armed_ = false;
  if (!reached_) return {};
  overlapped_ = sent_;
  while (sent_ < missing_.size()) calls_.send(sent_++);
  return {.reached = true, .late = late_};
}

}  // namespace accelerate
