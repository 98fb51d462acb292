// The parameters of a model as shards, whole only while something touches them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "residency/touch/shard_gatherer.h"
#include "residency/touch/touch_unit.h"
#include "residency/touch/unit_layout.h"

namespace accelerate::residency {

struct TouchOptions {
  // What modules compute with; shards keep the dtype that parameters had. Unset: the same.
  std::optional<at::ScalarType> whole_dtype{};
  // Where units live whose parameters are on the meta device: these have no values until their
  // pieces are written and shards_changed() is called. Unset: such parameters are a UsageError.
  std::optional<c10::Device> device{};
  // A unit goes when another one is touched, unless the pass needs it again, by the order of
  // before, and there is room: all that is whole is then less than 1.5 times what one unit and
  // those gathered ahead of it need at most, or less than twice that for a unit as large as those
  // in use. If not, it stays until its gradient is done.
  bool release_after_forward = true;
  // With release_after_forward: one that will be touched again within so many elements of others,
  // by the order of before, stays.
  int64_t keep_within_numel = 0;
  // More elements than these are not whole at once, unless one operation, or a scope, needs more;
  // those that were touched longest ago go. 0: no limit beyond the above.
  int64_t max_whole_numel = 0;
  // So many units are gathered ahead, by the order of before.
  int prefetch_units = 1;
};

struct WholeOptions {
  // What was written to parameters while they were whole is kept. All ranks write the same, or
  // `from_rank` is the one whose values count.
  bool write_back = false;
  std::optional<int> from_rank{};
};

class TouchedUnits;

// Units that are whole until it ends. Ended and destroyed by the thread that made it.
class [[nodiscard]] WholeScope {
 public:
  WholeScope(WholeScope&& other) noexcept;
  WholeScope& operator=(WholeScope&&) = delete;
  // Without from_rank it keeps what was written; else only end() does.
  ~WholeScope();
  // Collective where it has a `from_rank`.
  void end();

 private:
  friend class TouchedUnits;
  struct Held;
  explicit WholeScope(std::unique_ptr<Held> held);
  std::unique_ptr<Held> held_;
};

// Units of one model. From its construction on an operation on a parameter, or on a view of it, in
// any pass and on any thread, finds it whole; so do those that follow each other in one unit, for
// less than 2 microseconds each. Operations that would change a parameter throw UsageError outside
// of a scope that writes back, and whoever reads a pointer of a parameter in pieces gets
// c10::Error.
//
// Gathers are collective: the ranks must touch units in the same order. What is kept, gathered
// ahead and released follows from that order alone. All calls may come from any thread, one at a
// time but for touches. When it is destroyed, touches that follow throw UsageError.
class TouchedUnits {
 public:
  // Not collective: each rank keeps its part of the values that it has. Throws UsageError where
  // `units` cannot be, before anything has changed.
  TouchedUnits(std::vector<UnitParameters> units, int rank, int world_size,
               std::shared_ptr<ShardGatherer> gatherer, const TouchOptions& options);
  ~TouchedUnits();
  TouchedUnits(const TouchedUnits&) = delete;
  TouchedUnits& operator=(const TouchedUnits&) = delete;

  size_t size() const;
  const UnitParameters& unit(size_t unit) const;
  const UnitLayout& layout(size_t unit) const;
  // Of this rank: zeros between parameters. Written to by updates; see shards_changed().
  const at::Tensor& shard(size_t unit) const;
  // The elements of this rank of one parameter: a leaf over memory of shard(), maybe empty.
  const at::Tensor& piece(size_t unit, size_t index) const;
  // Which element of the whole parameter, in row-major order, is the first of it.
  int64_t begin_of_piece(size_t unit, size_t index) const;
  // Its unit and its number in it.
  std::optional<std::pair<size_t, size_t>> find(const at::Tensor& parameter) const;

  // Throws UsageError if a parameter has left its unit: set_data() and Module::to() do that, and
  // the dispatcher does not see them. `where` is what the user called. Cheap: before each forward
  // pass.
  void require_in_place(const char* where) const;

  // After each change of shards: nothing is whole any more, and graphs of passes before are
  // refused. Throws UsageError if a scope is open.
  void shards_changed();
  // Throws UsageError if a scope is open; `what` is what must wait for its end.
  void require_no_scope(const char* what) const;
  // The gradient of a unit is where it belongs: the unit goes, unless something holds it.
  void gradient_done(size_t unit);
  // The end of a pass: all go that nothing holds.
  void release_all();

  // Gathers `units`, or all if there are none, and keeps them whole. Collective.
  WholeScope whole(std::vector<size_t> units = {}, const WholeOptions& options = {});
  // Parameters are plain tensors again, with the values of all shards; nothing else may be called
  // but the destructor. Throws UsageError if a scope is open. Collective.
  void give_back();

  // Elements that are whole or on their way.
  int64_t whole_numel() const;
  // Gathers so far, and a number that tells their order from others.
  int64_t gathers() const;
  uint64_t order_digest() const;
  // The units gathered latest, oldest first; a few hundred at most.
  std::vector<size_t> recent_gathers() const;

 private:
  friend class WholeScope;
  class Keeper;
  std::shared_ptr<Keeper> keeper_;
};

}  // namespace accelerate::residency
