#include "residency/touch/touched_units.h"

#include <numeric>
#include <string>
#include <unordered_set>

#include "accelerate/errors.h"
#include "residency/touch/touch_keeper.h"

namespace accelerate::residency {
namespace {

void require_unit(const UnitParameters& unit, const TouchOptions& options,
                  std::unordered_set<const void*>& seen) {
  const auto refuse = [&](size_t index, const std::string& why) {
    throw UsageError(
        {.what = "parameter '" + unit.names[index] + "' of unit '" + unit.name + "' " + why,
         .where = "units",
         .hint = "leave it out of the units, so that every rank keeps all of it"});
  };
  if (unit.parameters.empty() || unit.parameters.size() != unit.names.size()) {
    throw UsageError({.what = "unit '" + unit.name + "' has " +
                              std::to_string(unit.parameters.size()) + " parameters and " +
                              std::to_string(unit.names.size()) + " names",
                      .where = "units",
                      .hint = "a unit has parameters, each with a name"});
  }
  const at::Tensor& first = unit.parameters[0];
  const auto device_of = [&](const at::Tensor& parameter) {
    return parameter.is_meta() && options.device ? *options.device : parameter.device();
  };
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    const at::Tensor& parameter = unit.parameters[i];
    if (parameter.layout() != c10::kStrided || !parameter.is_floating_point()) {
      refuse(i, "is not a dense tensor of floating-point numbers");
    }
    if (parameter.scalar_type() != first.scalar_type() ||
        device_of(parameter) != device_of(first)) {
      refuse(i, "differs in dtype or device from '" + unit.names[0] + "'");
    }
    if (parameter.is_meta() && !options.device) refuse(i, "has no memory");
    if (!parameter.is_leaf()) refuse(i, "is computed from other tensors");
    if (compat::touched_storage(parameter) != nullptr) refuse(i, "is in a unit already");
    if (!seen.insert(parameter.unsafeGetTensorImpl()).second) refuse(i, "is there twice");
  }
}

}  // namespace

struct WholeScope::Held {
  std::shared_ptr<TouchedUnits::Keeper> keeper;
  std::vector<size_t> units;
  WholeOptions options;
};

WholeScope::WholeScope(std::unique_ptr<Held> held) : held_(std::move(held)) {}
WholeScope::WholeScope(WholeScope&& other) noexcept = default;

WholeScope::~WholeScope() {
  if (!held_) return;
  try {
    held_->keeper->end_scope(held_->units, held_->options, /*may_exchange=*/false);
  } catch (...) {  // out of memory: what was written is lost, and the scope has ended
    held_.reset();
  }
}

void WholeScope::end() {
  if (!held_) return;
  const std::unique_ptr<Held> held = std::move(held_);
  held->keeper->end_scope(held->units, held->options, /*may_exchange=*/true);
}

TouchedUnits::TouchedUnits(std::vector<UnitParameters> units, int rank, int world_size,
                           std::shared_ptr<ShardGatherer> gatherer, const TouchOptions& options)
    : keeper_(std::make_shared<Keeper>(std::move(gatherer), options)) {
  std::unordered_set<const void*> seen;
  for (const UnitParameters& unit : units) require_unit(unit, options, seen);
  keeper_->add_units(std::move(units), rank, world_size);
}

TouchedUnits::~TouchedUnits() = default;

size_t TouchedUnits::size() const { return keeper_->size(); }
const UnitParameters& TouchedUnits::unit(size_t unit) const {
  return keeper_->unit(unit).parameters();
}
const UnitLayout& TouchedUnits::layout(size_t unit) const { return keeper_->unit(unit).layout(); }
const at::Tensor& TouchedUnits::shard(size_t unit) const { return keeper_->unit(unit).shard(); }
const at::Tensor& TouchedUnits::piece(size_t unit, size_t index) const {
  return keeper_->unit(unit).piece(index);
}
int64_t TouchedUnits::begin_of_piece(size_t unit, size_t index) const {
  return keeper_->unit(unit).begin_of_piece(index);
}
std::optional<std::pair<size_t, size_t>> TouchedUnits::find(const at::Tensor& parameter) const {
  return keeper_->find(parameter);
}

void TouchedUnits::require_in_place(const char* where) const {
  for (size_t number = 0; number < size(); ++number) keeper_->unit(number).require_in_place(where);
}

void TouchedUnits::shards_changed() { keeper_->shards_changed(); }
void TouchedUnits::require_no_scope(const char* what) const { keeper_->require_closed(what); }
void TouchedUnits::gradient_done(size_t unit) { keeper_->gradient_done(unit); }
void TouchedUnits::release_all() { keeper_->release_all(); }

WholeScope TouchedUnits::whole(std::vector<size_t> units, const WholeOptions& options) {
  if (units.empty()) {
    units.resize(size());
    std::iota(units.begin(), units.end(), size_t{0});
  }
  keeper_->hold_scope(units, options.write_back);
  return WholeScope(std::make_unique<WholeScope::Held>(
      WholeScope::Held{.keeper = keeper_, .units = std::move(units), .options = options}));
}

void TouchedUnits::give_back() { keeper_->give_back(); }

int64_t TouchedUnits::whole_numel() const { return keeper_->gathers().whole_numel; }
int64_t TouchedUnits::gathers() const { return keeper_->gathers().count; }
uint64_t TouchedUnits::order_digest() const { return keeper_->gathers().digest; }
std::vector<size_t> TouchedUnits::recent_gathers() const { return keeper_->gathers().recent; }

}  // namespace accelerate::residency
