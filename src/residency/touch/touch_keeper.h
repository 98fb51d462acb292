// What decides when units come and go.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "residency/touch/touch_order.h"
#include "residency/touch/touch_room.h"
#include "residency/touch/touch_unit.h"
#include "residency/touch/touched_units.h"

namespace accelerate::residency {

class TouchedUnits::Keeper final : public compat::TouchKeeper,
                                   public std::enable_shared_from_this<Keeper> {
 public:
  Keeper(std::shared_ptr<ShardGatherer> gatherer, const TouchOptions& options)
      : gatherer_(std::move(gatherer)),
        options_(options),
        room_({.prefetch_units = static_cast<size_t>(options.prefetch_units),
               .keep_within_numel = options.keep_within_numel,
               .max_whole_numel = options.max_whole_numel}) {}
  ~Keeper() override;
  void add_units(std::vector<UnitParameters> units, int rank, int world_size);

  void hold(at::ArrayRef<compat::TouchedStorage*> touched,
            const compat::TouchingOperation& operation) override;
  void let_go(at::ArrayRef<compat::TouchedStorage*> touched) noexcept override;
  void note_cast(compat::TouchedStorage& storage, const at::Tensor& source,
                 at::Tensor& result) override;

  void require_closed(const char* what) const;
  void shards_changed();
  void gradient_done(size_t unit);
  void release_all();
  void hold_scope(const std::vector<size_t>& units, bool writes);
  // Keeps what was written, for a scope that writes.
  void end_scope(const std::vector<size_t>& units, const WholeOptions& options, bool may_exchange);
  void give_back();

  const TouchUnit& unit(size_t number) const { return *units_[number].unit; }
  size_t size() const { return units_.size(); }
  std::optional<std::pair<size_t, size_t>> find(const at::Tensor& parameter) const;

  struct Gathers {
    int64_t whole_numel = 0;
    int64_t count = 0;
    uint64_t digest = 0;
    std::vector<size_t> recent{};
  };
  Gathers gathers() const;

 private:
  struct Kept {
    std::unique_ptr<TouchUnit> unit;
    int holds = 0;   // operations and scopes that are under way
    int scopes = 0;  // that are open
    int writes = 0;  // those of them that write back
    bool must_go = false;
    int64_t touched_at = 0;
  };
  using Numbers = c10::SmallVector<size_t, 4>;

  void require_writable(const compat::TouchingOperation& operation) const;
  void require_fresh(at::ArrayRef<compat::TouchedStorage*> touched) const;
  void require_no_scope(const char* what) const;
  // Has `wanted` whole, and what is known to follow on its way.
  void bring(const Numbers& wanted);
  void make_room(const Numbers& wanted);
  void release_unneeded(const Numbers& wanted);
  void prefetch();
  bool fits(int64_t numel) const;
  bool may_go(size_t unit, const Numbers& wanted) const;
  void note_boundary();
  void begin(size_t unit);
  void finish(size_t unit);
  void release(size_t unit) noexcept;
  void release_unheld();

  const std::shared_ptr<ShardGatherer> gatherer_;
  const TouchOptions options_;
  std::unordered_map<const void*, std::pair<size_t, size_t>> places_;  // of parameters

  mutable std::mutex mutex_;  // of what follows
  std::vector<Kept> units_;
  TouchOrder order_;
  TouchRoom room_;
  size_t latest_ = kNone;  // the unit that was touched last
  int64_t clock_ = 0;
  int64_t whole_numel_ = 0;
  uint64_t version_ = 0;  // of the values
  int64_t gathers_ = 0;
  uint64_t digest_ = 0;
  std::deque<size_t> recent_;

  static constexpr size_t kNone = static_cast<size_t>(-1);
};

}  // namespace accelerate::residency
