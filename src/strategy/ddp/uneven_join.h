// How ranks that ran out of data go on answering the exchanges of the others.
//
// Inside a join every exchange of a model is preceded by a notice: one small all-gather in which
// each rank says what it is about to do. A rank without data says "finished" and learns from the
// others what to answer: the broadcast of buffers before a forward pass, or the reduction of
// gradients in a backward pass, to which it adds zeros. Passes that exchange nothing (no_sync,
// evaluation) give no notice, so their number may differ from rank to rank. The join ends with the
// notice in which all ranks have finished, or with one that a rank refuses something: all ranks
// then throw.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"
#include "accelerate/join.h"
#include "compat/c10d.h"
#include "compat/reducer.h"

namespace accelerate::detail {

class UnevenJoin;

// How a model's gradients meet in one backward pass.
enum class PassReduction : int64_t {
  kNone = 0,
  kOverlapped = 1,  // bucket by bucket, while the pass runs
  kDelayed = 2,     // after the pass: the buckets of several models cannot mix
};

// A model's part in one backward pass of a join. Its gradients are multiplied by weight / divisor
// before they are summed up.
struct ReductionPlan {
  PassReduction reduction = PassReduction::kNone;
  int64_t weight = 1;
  int64_t divisor = 1;
};

// A model that exchanges something, as a join sees it.
class JoinMember {
 public:
  virtual ~JoinMember() = default;

  // From here on every exchange asks `join` first, under the number `index`. Null: no more.
  virtual void set_join(UnevenJoin* join, size_t index) = 0;
  virtual UnevenJoin* join() const = 0;

  // Whether a backward pass that reaches this model reduces gradients now, and whether it can only
  // do so after the pass.
  virtual bool would_reduce() const = 0;
  virtual bool must_delay() const = 0;
  virtual bool is_reached_by(const compat::GraphNodes& graph) const = 0;
  // Throws UsageError if the graph leaves parameters out and the model was not told to expect it.
  virtual void require_all_reached_by(const compat::GraphNodes& graph) const = 0;
  virtual int64_t batch_weight() const = 0;

  // On a rank without data: the exchanges that the others make in before_forward(),
  // before_backward() and then in the pass or in after_backward().
  virtual void answer_buffers(int source) = 0;
  virtual void answer_before_backward() = 0;
  virtual void answer_reduction(bool delayed) = 0;
  // On all ranks, at the end: throws UsageError on all of them if the parameters differ between
  // those that say true for `compares`. Collective.
  virtual void require_same_replica(size_t index, bool compares) const = 0;
  // On all ranks, at the end: take over what `source` has learnt.
  virtual void copy_from(int source) = 0;
};

class UnevenJoin {
 public:
  // `members` in the order in which before_backward() is called for them.
  UnevenJoin(std::shared_ptr<Communicator> communicator, const JoinOptions& options,
             std::vector<JoinMember*> members, std::vector<JoinMember*> outsiders);
  ~UnevenJoin();  // the members leave
  UnevenJoin(const UnevenJoin&) = delete;
  UnevenJoin& operator=(const UnevenJoin&) = delete;

  // Runs `body` and then answers the others. Collective. What `body` throws passes at once.
  void run(const std::function<void()>& body);

  // Called by member `index` before its buffers are broadcast: the rank they come from. Collective
  // with the ranks that have data.
  int announce_buffers(size_t index);
  // Called by each member once before the backward pass of `loss`: its part in it. Collective, with
  // the first member that asks, if the pass reduces gradients.
  ReductionPlan announce_backward(size_t index, const at::Tensor& loss);

  // Throws UsageError here, in place of the next notice, and on all other ranks where they give
  // theirs: they would wait for this one otherwise. Blocks until they do, at most the timeout.
  [[noreturn]] void refuse_for_all(const ErrorInfo& info);

 private:
  enum class Step : int64_t { kFinished = 0, kBuffers = 1, kBackward = 2, kRefused = 3 };

  // What one rank says; of each member how it reduces and its weight.
  struct Notice {
    Step step = Step::kFinished;
    std::vector<int64_t> reductions;
    std::vector<int64_t> weights;
    bool same_step(const Notice& other) const {
      return step == other.step && reductions == other.reductions;
    }
  };

  Notice notice(Step step) const;
  void require_same_join();
  // Tells the others and hears from them.
  std::vector<Notice> gather_notices(const Notice& own) const;
  // The same. Throws UsageError on all ranks alike if one of them refuses something, if those with
  // data are about to do different things, or if the join must not be uneven and is.
  std::vector<Notice> exchange(const Notice& own);
  // On all ranks after a notice in which one refused something.
  [[noreturn]] void throw_refusal();
  std::vector<ReductionPlan> plan_backward(const at::Tensor& loss);
  bool answer_next();  // false: all have finished
  // Of the ranks that had data to the end: what one of the others holds is older.
  void require_same_replicas();
  void copy_from_last_source();
  [[noreturn]] void refuse(ErrorInfo info) const;
  std::string describe(const Notice& notice) const;

  std::shared_ptr<Communicator> communicator_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  JoinOptions options_;
  std::vector<JoinMember*> members_;
  std::vector<JoinMember*> outsiders_;               // models that the body must not train
  std::vector<std::optional<ReductionPlan>> plans_;  // of the pass that begins, until asked for
  std::vector<int64_t> unreduced_weight_;            // of each member, since its last reduction
  std::vector<int64_t> reductions_;                  // of each member that this rank took part in
  std::vector<bool> exchanged_;                      // whether a member exchanged anything at all
  int source_ = 0;                                   // lowest rank with data at the last notice
};

}  // namespace accelerate::detail
