#include "strategy/flat/unit_reducer.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "device/replay_actions.h"

namespace accelerate {
namespace {

constexpr int64_t kFloatBytes = 4;

std::optional<c10::Stream> stream_now(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

UnitReducer::UnitReducer(std::shared_ptr<residency::FlatUnit> unit,
                         std::shared_ptr<Communicator> ranks, int64_t range_bytes,
                         std::function<void()> on_local_gradient)
    : unit_(std::move(unit)),
      ranks_(std::move(ranks)),
      on_local_gradient_(std::move(on_local_gradient)),
      range_of_(unit_->parameters().size()),
      came_(unit_->parameters().size(), false) {
  // From the end of the matrices to the beginning, then the same for the rest.
  const auto cut = [&](int64_t from, int64_t to) {
    bool is_open = false;
    for (size_t i = unit_->parameters().size(); i-- > 0;) {
      if (unit_->begin(i) < from || unit_->end(i) > to) continue;
      if (is_open && (ranges_.back().end - unit_->begin(i)) * kFloatBytes > range_bytes) {
        is_open = false;
      }
      if (!is_open) ranges_.push_back({.begin = unit_->end(i), .end = unit_->end(i)});
      is_open = true;
      ranges_.back().begin = unit_->begin(i);
      ++ranges_.back().parameters;
      range_of_[i] = ranges_.size() - 1;
    }
  };
  cut(0, unit_->matrix_numel());
  cut(unit_->matrix_numel(), unit_->numel());
  make_hooks();
}

void UnitReducer::make_hooks() {
  made_on_ = stream_now(unit_->gradient().device());
  hooks_ = std::make_unique<compat::GradientHooks>(unit_->parameters(),
                                                   [this](size_t parameter) { came(parameter); });
}

void UnitReducer::hold_hooks(bool held) {
  const bool fit = !held || made_on_ == stream_now(unit_->gradient().device());
  if (std::exchange(holds_hooks_, held) == held && fit) return;
  hooks_.reset();
  if (held) make_hooks();
}

void UnitReducer::arm(bool overlaps) {
  if (!holds_hooks_) make_hooks();  // on the nodes of this pass
  const std::lock_guard lock(mutex_);
  armed_ = true;
  overlaps_ = overlaps;
  reached_ = came_late_ = false;
  sent_ = overlapped_ = 0;
  under_way_.clear();
  came_.assign(came_.size(), false);
  for (Range& range : ranges_) range.missing = range.parameters;
}

void UnitReducer::send(const Range& range) {
  if (range.begin == range.end) return;  // of parameters without elements
  at::Tensor part = unit_->gradient().narrow(0, range.begin, range.end - range.begin);
  under_way_.push_back(ranks_->all_reduce_async(part, ReduceOp::kMean));
}

at::Tensor UnitReducer::send_reached() {
  const size_t count = unit_->parameters().size();
  const std::vector<size_t> own = unit_->with_gradient();
  const auto place = unit_->gradient().options();
  at::Tensor reached = at::ones({static_cast<int64_t>(count)}, place);
  if (own.size() < count) {
    if (device::ReplayActions::current() != nullptr) refuse_recording(own);
    at::Tensor here = at::zeros({static_cast<int64_t>(count)}, at::kFloat);
    for (const size_t index : own) here.data_ptr<float>()[index] = 1;
    reached = here.to(place.device());
  }
  under_way_.push_back(ranks_->all_reduce_async(reached, ReduceOp::kMax));
  return reached;
}

// Only a rank that has left something out waits to know what the others have done.
void UnitReducer::take_over_reached(const at::Tensor& reached) const {
  if (unit_->with_gradient().size() == unit_->parameters().size()) return;
  const at::Tensor here = reached.cpu();
  std::vector<size_t> of_others;
  for (size_t i = 0; i < unit_->parameters().size(); ++i) {
    if (here.data_ptr<float>()[i] != 0 && !unit_->has_gradient(i)) of_others.push_back(i);
  }
  unit_->declare_gradients(of_others);
}

void UnitReducer::refuse_recording(const std::vector<size_t>& own) const {
  size_t missing = 0;
  while (missing < own.size() && own[missing] == missing) ++missing;
  throw UsageError({.what = "the loss does not reach '" + unit_->names()[missing] +
                            "' on this rank, and a graph cannot ask whether it does on others",
                    .where = "backward",
                    .hint = "let losses reach all parameters of flat models, or freeze the others "
                            "before prepare()"});
}

void UnitReducer::came(size_t parameter) {
  const std::lock_guard lock(mutex_);
  if (!armed_) return on_local_gradient_();
  reached_ = true;
  const size_t own = range_of_[parameter];
  if (own < sent_) {
    if (!std::exchange(came_late_, true)) late_parameter_ = parameter;
    return;
  }
  if (came_[parameter]) return;
  came_[parameter] = true;
  --ranges_[own].missing;
  if (!overlaps_) return;
  while (sent_ < ranges_.size() && ranges_[sent_].missing == 0) send(ranges_[sent_++]);
}

bool UnitReducer::finish() {
  if (!holds_hooks_) hooks_.reset();
  const std::lock_guard lock(mutex_);
  armed_ = false;
  if (!reached_) return false;
  overlapped_ = sent_;
  while (sent_ < ranges_.size()) send(ranges_[sent_++]);
  const at::Tensor reached = send_reached();
  for (Work& work : under_way_) work.wait();
  under_way_.clear();
  take_over_reached(reached);
  if (!came_late_) return true;
  throw UsageError({.what = "'" + unit_->names()[late_parameter_] +
                            "' got a gradient in one pass twice, the second time after the first "
                            "was sent to the other ranks",
                    .where = "backward",
                    .hint = "do not run backward passes inside of others (checkpointing by hand) "
                            "with flat parameters on several ranks"});
}

}  // namespace accelerate
