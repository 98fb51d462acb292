// Averages the gradients of a unit over the ranks, while the backward pass still runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "accelerate/communicator.h"
#include "residency/flat_unit.h"
#include "strategy/ddp/arrival_order.h"

namespace accelerate {

// Cuts the gradient vector of a unit into ranges of whole parameters. A range is exchanged as soon
// as all its parameters have their gradients and all ranges before it are on their way. The order
// is the same on all ranks and in all passes: from the last matrix to the first, then the vectors,
// which belong to layers everywhere. Ranges that a pass leaves incomplete go when it ends, so that
// unused parameters hold nobody up.
class UnitReducer {
 public:
  // `on_local_gradient` is called when a gradient comes in a pass that was not armed, by the thread
  // of that pass.
  UnitReducer(std::shared_ptr<residency::FlatUnit> unit, std::shared_ptr<Communicator> ranks,
              int64_t range_bytes, std::function<void()> on_local_gradient);

  // See ArrivalOrder.
  void hold_hooks(bool held) { order_->hold_hooks(held); }
  // Before a pass whose gradients are to be averaged, with all that are there already. Without
  // `overlaps` all are sent by finish(): units that share a pass send in the order of these calls,
  // since their gradients may come in another order on another rank.
  void arm(bool overlaps);
  // After it, on the same thread, when the unit knows its gradients: parameters that have one on
  // any rank have one on all from then on. Returns false, and exchanges nothing, if the pass
  // reached no parameter: on all ranks alike. Throws UsageError if a gradient came after its range
  // was sent, or if a parameter has none in a pass that is recorded; CommError as collectives do.
  bool finish();

  size_t ranges() const { return ranges_.size(); }
  // How many ranges were on their way before the latest pass ended.
  size_t overlapped() const { return order_->overlapped(); }

 private:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
  };

  // Cuts the vector, and returns the range of each parameter.
  std::vector<size_t> cut(int64_t range_bytes);
  void send(const Range& range);
  // For each parameter whether it has a gradient on any rank, once the exchange is done.
  at::Tensor send_reached();
  void take_over_reached(const at::Tensor& reached) const;
  [[noreturn]] void refuse_recording(const std::vector<size_t>& own) const;

  std::shared_ptr<residency::FlatUnit> unit_;
  std::shared_ptr<Communicator> ranks_;
  std::vector<Range> ranges_;  // in the order in which they are sent
  std::vector<Work> under_way_;
  std::unique_ptr<ArrivalOrder> order_;  // last: it calls the rest
};

}  // namespace accelerate
