// Reduces the gradients of a model over the ranks and leaves each rank its parts, bucket by bucket,
// while the backward pass still runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "accelerate/communicator.h"
#include "strategy/ddp/arrival_order.h"
#include "strategy/zero/shard_groups.h"
#include "strategy/zero/shard_plan.h"

namespace accelerate {

// Between passes the .grad() of a parameter is nothing, or a piece: a row of the elements that this
// rank keeps, averaged over the ranks, which may be none; or whole, as a pass of this rank alone, a
// checkpoint or the program has left it. A pass that is reduced makes pieces of all of them. Where
// there are several copies, parts are scattered among the ranks of a copy and averaged over the
// copies, so that all have the same.
class GradientScatter {
 public:
  struct Calls {
    // A gradient came in a pass that was not begun here. By the thread of that pass.
    std::function<void()> on_local_gradient;
    // The gradients of a bucket were taken: by the thread of the pass, or by that of finish().
    std::function<void(size_t bucket)> on_taken;
    // The type in which a bucket is reduced, and which pieces have; unset: that of its parameters.
    std::function<std::optional<at::ScalarType>(size_t bucket)> type_of;
  };

  // `parameters` are those of the plan; of those that need no gradient none is touched.
  GradientScatter(std::vector<at::Tensor> parameters, std::shared_ptr<const ShardPlan> plan,
                  ShardGroups groups, Calls calls);

  // From the next pass on gradients are sent in `type`, whatever pieces have.
  void send_as(at::ScalarType type) { sent_type_ = type; }

  // See ArrivalOrder.
  void hold_hooks(bool held) { order_.hold_hooks(held); }

  // Before a pass whose gradients stay on this rank, and after it. Pieces that it adds to become
  // whole, so that their mean over the ranks is what they were. Not collective.
  void begin_local();
  void finish_local();
  // Gives gradients of this rank alone the type in which they are reduced: of several passes a sum
  // in half precision would lose what is small beside it. After each local pass.
  void widen_gradients();
  // Before a pass that is reduced, with what is there already, and after it; parameters that have a
  // gradient on any rank have one on all from then on. finish() returns false, and nothing is
  // exchanged, if the pass reached no parameter: on all ranks alike. See ArrivalOrder::arm() for
  // `overlaps`. Throws UsageError if a gradient came after its bucket was sent; CommError as
  // collectives do.
  void begin(bool overlaps);
  bool finish();

  // Puts the pieces of all ranks together in every .grad(): for checkpoints, which keep gradients
  // as DDP has them. Collective.
  void make_whole();
  // Pieces become whole, as begin_local() has them: for passes that were not begun here. Not
  // collective.
  void spread_pieces();
  // What either has made whole is a piece again, unless something was added to it.
  void make_pieces();

  // Whether the .grad() of a parameter is a piece: the one that was left there, or a row of as many
  // elements that the program has put in its place.
  bool is_piece(size_t parameter) const;
  // The gradient of a parameter is about to be dropped: what comes in its place is no piece.
  void forget_piece(size_t parameter) { had_piece_[parameter] = false; }
  // The same of all: others are loaded.
  void forget_pieces() { had_piece_.assign(had_piece_.size(), false); }

  size_t overlapped() const { return order_.overlapped(); }

 private:
  struct Exchange {
    size_t bucket = 0;
    at::Tensor all{};  // until it was scattered
    Work work{};
  };

  at::TensorOptions options_of(size_t bucket) const;
  void place_piece(size_t parameter, at::Tensor piece);
  void set_aside();
  void give_back(size_t parameter);
  // Makes the gradient of a parameter of its piece in aside_.
  void spread(size_t parameter);
  // Adds a piece to its place in a whole gradient.
  void add_piece(size_t parameter, at::Tensor& gradient, const at::Tensor& piece) const;
  void send(size_t bucket);
  void receive_first();
  void end_first_average();
  // Which flags are set on any rank. Collective.
  std::vector<bool> anywhere(const std::vector<bool>& here) const;
  void require_shape_of_gradient(size_t parameter) const;
  void refuse_late(size_t parameter) const;

  std::vector<at::Tensor> parameters_;
  std::shared_ptr<const ShardPlan> plan_;
  ShardGroups groups_;
  std::function<void(size_t)> on_taken_;
  std::vector<std::optional<at::ScalarType>> types_;  // by bucket
  std::optional<at::ScalarType> sent_type_;           // unset: that of the pieces
  std::vector<bool> is_idle_;                         // by bucket: no parameter needs a gradient
  // By parameter: the memory of the latest piece, which is not kept alive.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> pieces_;
  std::vector<bool> had_piece_;     // by parameter: and what is there now takes its place
  std::vector<at::Tensor> wholes_;  // by parameter: made of its piece in aside_
  std::vector<int64_t> versions_;   // of these, when they were made
  // Of the pass that runs:
  std::vector<at::Tensor> aside_;  // by parameter: pieces of before
  std::vector<bool> reached_;      // by parameter, on this rank
  std::vector<at::Tensor> parts_;  // by bucket: what this rank keeps
  std::deque<Exchange> under_way_;
  std::deque<Exchange> averages_;  // of parts that were scattered, over the copies
  ArrivalOrder order_;             // last: it calls the rest
};

}  // namespace accelerate
