#include "strategy/flat/unit_reducer.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "device/replay_actions.h"

namespace accelerate {
namespace {

constexpr int64_t kFloatBytes = 4;

}  // namespace

UnitReducer::UnitReducer(std::shared_ptr<residency::FlatUnit> unit,
                         std::shared_ptr<Communicator> ranks, int64_t range_bytes,
                         std::function<void()> on_local_gradient)
    : unit_(std::move(unit)), ranks_(std::move(ranks)) {
  std::vector<size_t> range_of = cut(range_bytes);
  order_ = std::make_unique<ArrivalOrder>(
      unit_->parameters(), std::move(range_of), ranges_.size(),
      ArrivalOrder::Calls{.send = [this](size_t range) { send(ranges_[range]); },
                          .on_local_gradient = std::move(on_local_gradient)});
}

// From the end of the matrices to the beginning, then the same for the rest.
std::vector<size_t> UnitReducer::cut(int64_t range_bytes) {
  std::vector<size_t> range_of(unit_->parameters().size());
  const auto cut_between = [&](int64_t from, int64_t to) {
    bool is_open = false;
    for (size_t i = unit_->parameters().size(); i-- > 0;) {
      if (unit_->begin(i) < from || unit_->end(i) > to) continue;
      if (is_open && (ranges_.back().end - unit_->begin(i)) * kFloatBytes > range_bytes) {
        is_open = false;
      }
      if (!is_open) ranges_.push_back({.begin = unit_->end(i), .end = unit_->end(i)});
      is_open = true;
      ranges_.back().begin = unit_->begin(i);
      range_of[i] = ranges_.size() - 1;
    }
  };
  cut_between(0, unit_->matrix_numel());
  cut_between(unit_->matrix_numel(), unit_->numel());
  return range_of;
}

void UnitReducer::arm(bool overlaps) {
  under_way_.clear();
  order_->arm(overlaps);
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

bool UnitReducer::finish() {
  const ArrivalOrder::End end = order_->finish();
  if (!end.reached) return false;
  const at::Tensor reached = send_reached();
  for (Work& work : under_way_) work.wait();
  under_way_.clear();
  take_over_reached(reached);
  if (!end.late) return true;
  throw UsageError({.what = "'" + unit_->names()[*end.late] +
                            "' got a gradient in one pass twice, the second time after the first "
                            "was sent to the other ranks",
                    .where = "backward",
                    .hint = "do not run backward passes inside of others (checkpointing by hand) "
                            "with flat parameters on several ranks"});
}

}  // namespace accelerate
