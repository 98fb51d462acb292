// Units that are whole for a scope, shards that change, and what is refused.
#include <algorithm>
#include <string>

#include "accelerate/errors.h"
#include "residency/touch/touch_keeper.h"

namespace accelerate::residency {

void TouchedUnits::Keeper::require_writable(const compat::TouchingOperation& operation) const {
  const compat::TouchedStorage& written = *operation.written;
  const std::string name(operation.name);
  if (operation.moves_memory) {
    throw UsageError({.what = name + " would give other memory to " + written.name() +
                              ", which is in pieces on several ranks",
                      .where = name,
                      .hint = "move, cast and load the module before prepare(), or call "
                              "free_memory() first"});
  }
  if (written.cast() == nullptr && units_[written.unit()].writes > 0) return;
  throw UsageError({.what = name + " writes to " + written.name() +
                            ", which is in pieces on several ranks: what it writes would be lost",
                    .where = name,
                    .hint = "write inside of Accelerator::full_parameters(model, {.write_back = "
                            "true})"});
}

void TouchedUnits::Keeper::require_fresh(at::ArrayRef<compat::TouchedStorage*> touched) const {
  for (const compat::TouchedStorage* storage : touched) {
    if (storage->cast() == nullptr || storage->cast()->version == version_) continue;
    throw UsageError(
        {.what = storage->name() + " was needed by a pass after the parameter had been updated",
         .where = "backward",
         .hint = "call backward() before optimizer.step()"});
  }
}

void TouchedUnits::Keeper::require_no_scope(const char* what) const {
  const auto open = std::ranges::find_if(units_, [](const Kept& kept) { return kept.holds > 0; });
  if (open == units_.end()) return;
  throw UsageError({.what = std::string(what) + " while parameters of '" + open->unit->name() +
                            "' are whole for a scope",
                    .where = "full_parameters",
                    .hint = "end the scope first"});
}

void TouchedUnits::Keeper::require_closed(const char* what) const {
  const std::lock_guard lock(mutex_);
  require_no_scope(what);
}

void TouchedUnits::Keeper::shards_changed() {
  const std::lock_guard lock(mutex_);
  require_no_scope("shards change");
  release_unheld();
  ++version_;
  for (const Kept& kept : units_) kept.unit->bump_versions();
}

void TouchedUnits::Keeper::hold_scope(const std::vector<size_t>& units, bool writes) {
  const std::lock_guard lock(mutex_);
  note_boundary();
  size_t held = 0;
  try {
    for (const size_t number : units) {
      Kept& kept = units_[number];
      if (kept.unit->state() == TouchUnit::State::kInPieces) begin(number);
      if (kept.unit->state() == TouchUnit::State::kComing) finish(number);
      ++kept.holds;
      ++held;
    }
  } catch (...) {
    for (size_t i = 0; i < held; ++i) {
      if (--units_[units[i]].holds == 0) release(units[i]);
    }
    throw;
  }
  for (const size_t number : units) {
    ++units_[number].scopes;
    units_[number].writes += writes ? 1 : 0;
  }
}

void TouchedUnits::Keeper::end_scope(const std::vector<size_t>& units, const WholeOptions& options,
                                     bool may_exchange) {
  const std::lock_guard lock(mutex_);
  const auto let_go_of_all = [&] {
    for (const size_t number : units) {
      Kept& kept = units_[number];
      --kept.scopes;
      if (options.write_back) --kept.writes;
      if (--kept.holds == 0) release(number);
    }
  };
  try {
    const bool keeps = options.write_back && (may_exchange || !options.from_rank);
    for (const size_t number : units) {
      if (!keeps) break;
      if (options.from_rank) {
        const compat::PlainMode plain;
        gatherer_->broadcast(units_[number].unit->row(), *options.from_rank);
      }
      units_[number].unit->take_over_row();
      units_[number].unit->bump_versions();  // what another rank has written is a write here too
    }
    if (options.write_back) ++version_;
  } catch (...) {
    let_go_of_all();
    throw;
  }
  let_go_of_all();
}

void TouchedUnits::Keeper::give_back() {
  const std::lock_guard lock(mutex_);
  require_no_scope("parameters are given back");
  release_unheld();
  for (Kept& kept : units_) kept.unit->give_back(*gatherer_);
  places_.clear();
}

std::optional<std::pair<size_t, size_t>> TouchedUnits::Keeper::find(
    const at::Tensor& parameter) const {
  const auto found = places_.find(parameter.unsafeGetTensorImpl());
  return found == places_.end() ? std::nullopt : std::optional(found->second);
}

TouchedUnits::Keeper::Gathers TouchedUnits::Keeper::gathers() const {
  const std::lock_guard lock(mutex_);
  return {.whole_numel = whole_numel_,
          .count = gathers_,
          .digest = digest_,
          .recent = {recent_.begin(), recent_.end()}};
}

}  // namespace accelerate::residency
