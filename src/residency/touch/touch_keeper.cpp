#include "residency/touch/touch_keeper.h"

#include <algorithm>

#include "accelerate/errors.h"

namespace accelerate::residency {
namespace {

constexpr size_t kRecentGathers = 256;
constexpr uint64_t kDigestFactor = 1099511628211U;  // FNV

template <class Numbers>
bool is_among(const Numbers& numbers, size_t number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

}  // namespace

TouchedUnits::Keeper::~Keeper() {
  for (Kept& kept : units_) kept.unit->abandon();
}

void TouchedUnits::Keeper::add_units(std::vector<UnitParameters> units, int rank, int world_size) {
  for (UnitParameters& parameters : units) {
    const size_t number = units_.size();
    const at::ScalarType dtype =
        options_.whole_dtype.value_or(parameters.parameters[0].scalar_type());
    for (size_t i = 0; i < parameters.parameters.size(); ++i) {
      places_.emplace(parameters.parameters[i].unsafeGetTensorImpl(), std::pair(number, i));
    }
    const at::Tensor& first = parameters.parameters[0];
    const c10::Device device = first.is_meta() ? *options_.device : first.device();
    units_.push_back(
        {.unit = std::make_unique<TouchUnit>(std::move(parameters), number, rank, world_size, dtype,
                                             device, weak_from_this())});
    room_.add_unit(units_.back().unit->whole_numel());
  }
}

void TouchedUnits::Keeper::hold(at::ArrayRef<compat::TouchedStorage*> touched,
                                const compat::TouchingOperation& operation) {
  const std::lock_guard lock(mutex_);
  if (operation.written != nullptr) require_writable(operation);
  require_fresh(touched);
  Numbers wanted;
  bool all_whole = true;
  for (const compat::TouchedStorage* storage : touched) {
    const size_t number = storage->unit();
    if (is_among(wanted, number)) continue;
    wanted.push_back(number);
    all_whole = all_whole && units_[number].unit->state() == TouchUnit::State::kWhole;
  }
  // What a rank does with the units of a scope, maybe alone, is no part of the order that all
  // share.
  Numbers in_order;
  for (const size_t number : wanted) {
    if (units_[number].scopes == 0) in_order.push_back(number);
  }
  if (!in_order.empty() && (!all_whole || !is_among(in_order, latest_))) bring(in_order);
  for (const size_t number : wanted) units_[number].unit->use_on_current_stream();
  for (compat::TouchedStorage* storage : touched) {
    if (storage->cast() == nullptr) continue;
    TouchUnit& unit = *units_[storage->unit()].unit;
    if (!storage->has_memory()) unit.fill_cast(*storage);
    unit.use_on_current_stream(*storage);
  }
  for (const compat::TouchedStorage* storage : touched) ++units_[storage->unit()].holds;
}

void TouchedUnits::Keeper::let_go(at::ArrayRef<compat::TouchedStorage*> touched) noexcept {
  const std::lock_guard lock(mutex_);
  for (const compat::TouchedStorage* storage : touched) {
    Kept& kept = units_[storage->unit()];
    if (--kept.holds == 0 && kept.must_go) release(storage->unit());
  }
}

void TouchedUnits::Keeper::note_cast(compat::TouchedStorage& storage, const at::Tensor& source,
                                     at::Tensor& result) {
  const std::lock_guard lock(mutex_);
  const compat::PlainMode plain;
  auto cast = std::make_unique<const compat::CastSource>(compat::CastSource{
      .source = source.detach(), .dtype = result.scalar_type(), .version = version_});
  auto memory = c10::make_intrusive<compat::TouchedStorage>(
      storage.name() + " in " + c10::toString(result.scalar_type()),
      static_cast<int64_t>(result.storage().nbytes()), result.device(), weak_from_this(),
      storage.unit(), std::move(cast));
  compat::adopt_cast(result, memory);
  units_[storage.unit()].unit->note_cast(*memory);
}

void TouchedUnits::Keeper::bring(const Numbers& wanted) {
  for (const size_t number : wanted) {
    if (number != latest_) order_.add(number);
    latest_ = number;
    units_[number].touched_at = ++clock_;
  }
  make_room(wanted);
  for (const size_t number : wanted) {
    if (units_[number].unit->state() == TouchUnit::State::kInPieces) begin(number);
  }
  for (const size_t number : wanted) {
    if (units_[number].unit->state() == TouchUnit::State::kComing) finish(number);
  }
  prefetch();
}

void TouchedUnits::Keeper::note_boundary() {
  order_.add_boundary();
  room_.note_boundary();
  latest_ = kNone;
}

bool TouchedUnits::Keeper::fits(int64_t numel) const {
  return options_.max_whole_numel == 0 || whole_numel_ + numel <= options_.max_whole_numel;
}

bool TouchedUnits::Keeper::may_go(size_t number, const Numbers& wanted) const {
  const Kept& kept = units_[number];
  return kept.unit->state() != TouchUnit::State::kInPieces && kept.holds == 0 &&
         !is_among(wanted, number);
}

void TouchedUnits::Keeper::release_unneeded(const Numbers& wanted) {
  const auto expected = order_.expected(room_.horizon());
  room_.note_touch(wanted, expected);
  std::vector<bool> is_whole;
  for (const Kept& kept : units_) {
    is_whole.push_back(kept.unit->state() != TouchUnit::State::kInPieces);
  }
  const std::vector<bool> stays = room_.staying(wanted, expected, is_whole);
  for (size_t number = 0; number < units_.size(); ++number) {
    if (!stays[number] && may_go(number, wanted)) release(number);
  }
}

void TouchedUnits::Keeper::make_room(const Numbers& wanted) {
  if (options_.release_after_forward) release_unneeded(wanted);
  int64_t missing = 0;
  for (const size_t number : wanted) {
    const TouchUnit& unit = *units_[number].unit;
    if (unit.state() == TouchUnit::State::kInPieces) missing += unit.whole_numel();
  }
  while (!fits(missing)) {
    size_t oldest = kNone;
    for (size_t number = 0; number < units_.size(); ++number) {
      if (!may_go(number, wanted)) continue;
      if (oldest == kNone || units_[number].touched_at < units_[oldest].touched_at) oldest = number;
    }
    if (oldest == kNone) return;
    release(oldest);
  }
}

void TouchedUnits::Keeper::prefetch() {
  for (size_t steps = 1; steps <= static_cast<size_t>(options_.prefetch_units); ++steps) {
    const auto next = order_.ahead(steps);
    if (!next) return;
    const TouchUnit& unit = *units_[*next].unit;
    if (unit.state() != TouchUnit::State::kInPieces) continue;
    if (!fits(unit.whole_numel())) return;
    begin(*next);
  }
}

void TouchedUnits::Keeper::begin(size_t number) {
  TouchUnit& unit = *units_[number].unit;
  unit.begin_gather(*gatherer_);
  whole_numel_ += unit.whole_numel();
  ++gathers_;
  digest_ = (digest_ ^ (number + 1)) * kDigestFactor;
  recent_.push_back(number);
  if (recent_.size() > kRecentGathers) recent_.pop_front();
}

void TouchedUnits::Keeper::finish(size_t number) {
  TouchUnit& unit = *units_[number].unit;
  try {
    unit.finish_gather();
  } catch (...) {
    whole_numel_ -= unit.whole_numel();
    throw;
  }
}

void TouchedUnits::Keeper::release(size_t number) noexcept {
  Kept& kept = units_[number];
  kept.must_go = false;
  if (kept.unit->state() == TouchUnit::State::kInPieces) return;
  kept.unit->release();
  whole_numel_ -= kept.unit->whole_numel();
  if (latest_ == number) latest_ = kNone;
}

void TouchedUnits::Keeper::gradient_done(size_t number) {
  const std::lock_guard lock(mutex_);
  if (units_[number].holds > 0) {
    units_[number].must_go = true;
  } else {
    release(number);
  }
}

void TouchedUnits::Keeper::release_unheld() {
  for (size_t number = 0; number < units_.size(); ++number) {
    if (units_[number].holds == 0) release(number);
  }
  note_boundary();
}

void TouchedUnits::Keeper::release_all() {
  const std::lock_guard lock(mutex_);
  release_unheld();
}

}  // namespace accelerate::residency
