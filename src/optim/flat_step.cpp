#include "optim/flat_step.h"

#include <ATen/ATen.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <typeinfo>
#include <unordered_set>

#include "accelerate/errors.h"
#include "device/replay_actions.h"
#include "optim/flat_update.h"
#include "optim/grouped_step.h"
#include "optim/overflow_watch.h"
#include "optim/recorded_scalars.h"

namespace accelerate {
namespace {

using residency::FlatUnit;
using torch::optim::AdamWOptions;
using torch::optim::AdamWParamState;

const AdamWOptions& adamw_options(const torch::optim::OptimizerParamGroup& group) {
  return static_cast<const AdamWOptions&>(group.options());
}

AdamWParamState* adamw_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr
                                          : static_cast<AdamWParamState*>(found->second.get());
}

// The part of `vector` that belongs to a parameter.
at::Tensor moment_of(const at::Tensor& vector, const FlatUnit& unit, size_t index) {
  return residency::part_of(vector, unit.begin(index), unit.parameters()[index].sizes());
}

bool lies_at(const at::Tensor& tensor, const at::Tensor& vector, int64_t place) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat &&
         tensor.data_ptr<float>() == vector.data_ptr<float>() + place;
}

// Without masters the update itself rounds, by chance.
bool needs_flat_update(const FlatUnit& unit) {
  return !unit.masters().defined() && unit.values().scalar_type() != at::kFloat;
}

// As far as one kernel cannot do both.
bool differ_in_kernel(const AdamWOptions& one, const AdamWOptions& other) {
  return one.lr() != other.lr() || one.betas() != other.betas() || one.eps() != other.eps();
}

}  // namespace

bool takes_flat_update(const torch::optim::Optimizer& optimizer, const FlatUnits& units) {
  const bool is_adamw = typeid(optimizer) == typeid(torch::optim::AdamW);
  for (const auto& unit : units) {
    if (!needs_flat_update(*unit)) continue;
    if (is_adamw) return true;
    throw UsageError({.what = "without masters only AdamW can be updated",
                      .where = "FlatOptions::masters",
                      .hint = "train with torch::optim::AdamW, or with masters"});
  }
  return is_adamw && std::ranges::any_of(units, [](const auto& unit) {
           return device::kernels_for(unit->values()) != nullptr;
         });
}

void MasterStep::settle() const {
  for (const auto& unit : units_) {
    unit->put_gradients_back();
    unit->settle_clip();
    unit->adopt_written_values();
  }
}

void MasterStep::refresh() const {
  for (const auto& unit : units_) unit->masters_to_values();
}

at::Tensor MasterStep::step(LossClosure closure) {
  if (closure) {  // nobody has looked yet
    for (const auto& unit : units_) unit->refresh("step");
  }
  settle();
  at::Tensor loss = plain_->step(std::move(closure));
  refresh();
  return loss;
}

void MasterStep::step_unless(const at::Tensor& found_inf) {
  settle();
  plain_->step_unless(found_inf);
  refresh();
}

FlatAdamWStep::FlatAdamWStep(torch::optim::Optimizer& optimizer, FlatUnits units)
    : optimizer_(optimizer),
      units_(std::move(units)),
      by_masters_(make_adamw_step(optimizer), units_),
      moments_(units_.size()) {
  arranged_ = arrange();
}

bool FlatAdamWStep::arrange() {
  group_sizes_.clear();
  places_.clear();
  std::unordered_set<const void*> seen;
  bool all_are_flat = true;
  std::vector<int64_t> covered(units_.size(), 0);
  const auto& groups = optimizer_.param_groups();
  for (size_t group = 0; group < groups.size(); ++group) {
    group_sizes_.push_back(groups[group].params().size());
    for (const at::Tensor& parameter : groups[group].params()) {
      bool found = false;
      for (size_t unit = 0; unit < units_.size() && !found; ++unit) {
        const auto index = units_[unit]->find(parameter);
        if (!index) continue;
        found = true;
        places_.push_back({.unit = unit,
                           .index = *index,
                           .group = group,
                           .begin = units_[unit]->begin(*index),
                           .end = units_[unit]->end(*index)});
        covered[unit] += places_.back().end - places_.back().begin;
      }
      all_are_flat = all_are_flat && found && seen.insert(parameter.unsafeGetTensorImpl()).second;
    }
  }
  std::ranges::sort(places_, {}, [](const Place& at) { return std::tuple(at.unit, at.begin); });
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    units_[unit]->set_update_clips(all_are_flat && covered[unit] == units_[unit]->numel() &&
                                   device::kernels_for(units_[unit]->values()) != nullptr);
  }
  return all_are_flat;
}

const at::Tensor& FlatAdamWStep::master_at(const Place& place) const {
  return units_[place.unit]->master(place.index);
}

int64_t FlatAdamWStep::count_of(const Place& place) const {
  const AdamWParamState* state = adamw_state(optimizer_, master_at(place));
  return state == nullptr ? 0 : state->step();
}

void FlatAdamWStep::enter_state(const Place& place) {
  const FlatUnit& unit = *units_[place.unit];
  Moments& moments = moments_[place.unit];
  const at::Tensor& master = master_at(place);
  AdamWParamState* state = adamw_state(optimizer_, master);
  if (state != nullptr && moments.average.defined() &&
      lies_at(state->exp_avg(), moments.average, place.begin) &&
      lies_at(state->exp_avg_sq(), moments.square, place.begin)) {
    return;
  }
  if (device::ReplayActions::current() != nullptr) RecordedScalars::refuse_first_step();
  if (!moments.average.defined()) {
    moments.average = at::zeros_like(unit.gradient());
    moments.square = at::zeros_like(unit.gradient());
  }
  const at::Tensor average = moment_of(moments.average, unit, place.index);
  const at::Tensor square = moment_of(moments.square, unit, place.index);
  if (state == nullptr) {
    auto fresh = std::make_unique<AdamWParamState>();
    state = fresh.get();
    optimizer_.state()[master.unsafeGetTensorImpl()] = std::move(fresh);
    average.zero_();
    square.zero_();
  } else {
    average.copy_(state->exp_avg());
    square.copy_(state->exp_avg_sq());
  }
  state->exp_avg(average);
  state->exp_avg_sq(square);
}

bool FlatAdamWStep::enter() {
  for (const auto& group : optimizer_.param_groups()) {
    if (adamw_options(group).amsgrad()) return false;
  }
  updated_.clear();
  for (const Place& place : places_) {
    updated_.push_back(units_[place.unit]->has_gradient(place.index));
    if (updated_.back()) enter_state(place);
  }
  return true;
}

std::vector<FlatAdamWStep::Run> FlatAdamWStep::runs(const Updated& updated) const {
  const auto& groups = optimizer_.param_groups();
  std::vector<Run> made;
  for (size_t at = 0; at < places_.size(); ++at) {
    if (!updated[at]) continue;
    const Place& next = places_[at];
    const AdamWOptions& options = adamw_options(groups[next.group]);
    const int64_t length = next.end - next.begin;
    if (!made.empty()) {
      Run& last = made.back();
      const Place& first = places_[last.first];
      const AdamWOptions& before = adamw_options(groups[first.group]);
      const bool joins = first.unit == next.unit && last.end == next.begin &&
                         count_of(first) == count_of(next) && !differ_in_kernel(before, options);
      const bool decays_alike =
          before.weight_decay() == options.weight_decay() && last.decayed == last.end - last.begin;
      if (joins && (decays_alike || options.weight_decay() == 0)) {
        if (decays_alike) last.decayed += length;
        last.end = next.end;
        continue;
      }
    }
    made.push_back({.first = at, .begin = next.begin, .end = next.end, .decayed = length});
  }
  return made;
}

void FlatAdamWStep::make_scalars(size_t runs) {
  const auto options = units_[0]->gradient().options();
  while (scalars_.size() < runs) {
    if (device::ReplayActions::current() != nullptr) RecordedScalars::refuse_first_step();
    scalars_.push_back({.rate = at::empty({}, options), .count = at::empty({}, options)});
  }
}

void FlatAdamWStep::write_rate(Scalars& scalars, const Run& run) {
  const double wanted = adamw_options(optimizer_.param_groups()[places_[run.first].group]).lr();
  if (std::exchange(scalars.known_rate, wanted) == wanted) return;
  scalars.rate.fill_(wanted);
}

void FlatAdamWStep::count(int64_t change) const {
  for (size_t at = 0; at < places_.size(); ++at) {
    if (!updated_[at]) continue;
    if (AdamWParamState* state = adamw_state(optimizer_, master_at(places_[at]))) {
      state->step(state->step() + change);
    }
  }
}

// Whether the optimizer keeps its moments where the recorded update writes them.
bool FlatAdamWStep::holds_state(const Updated& updated) const {
  for (size_t at = 0; at < places_.size(); ++at) {
    if (!updated[at]) continue;
    const Place& place = places_[at];
    const AdamWParamState* state = adamw_state(optimizer_, master_at(place));
    if (state == nullptr || !lies_at(state->exp_avg(), moments_[place.unit].average, place.begin) ||
        !lies_at(state->exp_avg_sq(), moments_[place.unit].square, place.begin)) {
      return false;
    }
  }
  return true;
}

void FlatAdamWStep::follow_replays(const std::vector<Run>& runs) {
  struct Known {
    const torch::optim::OptimizerOptions* place;
    size_t size;
    AdamWOptions options;
  };
  std::vector<Known> known;
  for (const auto& group : optimizer_.param_groups()) {
    known.push_back({&group.options(), group.params().size(), adamw_options(group)});
  }
  auto* actions = device::ReplayActions::current();
  actions->add_check([this, known = std::move(known), updated = updated_, runs]() mutable {
    const auto& groups = optimizer_.param_groups();
    if (groups.size() != known.size()) return false;
    for (size_t i = 0; i < groups.size(); ++i) {
      if (&groups[i].options() != known[i].place || groups[i].params().size() != known[i].size)
        return false;
      known[i].options.lr(adamw_options(groups[i]).lr());  // read from the device
      if (!(known[i].options == adamw_options(groups[i]))) return false;
    }
    // Rates and counts may join others than they did.
    return places_.size() == updated.size() && holds_state(updated) && this->runs(updated) == runs;
  });
  actions->add([this, runs, updated = updated_, looks = found_inf_.defined()] {
    updated_ = updated;
    count(1);
    for (size_t i = 0; i < runs.size(); ++i) {
      Scalars& scalars = scalars_[i];
      write_rate(scalars, runs[i]);
      const int64_t wanted = count_of(places_[runs[i].first]);
      if (scalars.known_count != wanted) scalars.count.fill_(static_cast<double>(wanted));
      scalars.known_count = looks ? -1 : wanted + 1;
    }
    made_by_masters_ = false;
  });
}

void FlatAdamWStep::update(const Run& run, const Scalars& scalars,
                           const FlatUnit::Clip& clip) const {
  const Place& place = places_[run.first];
  const FlatUnit& unit = *units_[place.unit];
  const Moments& moments = moments_[place.unit];
  const AdamWOptions& options = adamw_options(optimizer_.param_groups()[place.group]);
  const int64_t length = run.end - run.begin;
  const auto cut = [&](const at::Tensor& vector) {
    if (!vector.defined() || length == vector.numel()) return vector;
    return vector.narrow(0, run.begin, length);
  };
  flat_adamw_update({.master = cut(unit.masters()),
                     .parameters = cut(unit.values()),
                     .gradient = cut(unit.gradient()),
                     .exp_avg = cut(moments.average),
                     .exp_avg_sq = cut(moments.square),
                     .decayed_numel = run.decayed,
                     .learning_rate = scalars.rate,
                     .step = scalars.count,
                     .norm = clip.norm,
                     .found_inf = found_inf_,
                     .max_norm = clip.max_norm,
                     .beta1 = std::get<0>(options.betas()),
                     .beta2 = std::get<1>(options.betas()),
                     .eps = options.eps(),
                     .weight_decay = options.weight_decay(),
                     .stochastic_rounding = needs_flat_update(unit),
                     // Each run has random numbers of its own.
                     .seed = unit.options().seed + (static_cast<uint64_t>(run.begin) << 24)});
  units_[place.unit]->note_rounded(run.begin, run.end);
}

void FlatAdamWStep::leave_to_masters(const char* why) {
  for (const auto& unit : units_) {
    if (!needs_flat_update(*unit)) continue;
    throw UsageError(
        {.what = std::string("this update of AdamW cannot be made in flat vectors: ") + why,
         .where = "step",
         .hint = "train with FlatOptions::masters"});
  }
  made_by_masters_ = true;
  launches_ = 0;
}

at::Tensor FlatAdamWStep::step(LossClosure closure) {
  at::Tensor loss;
  if (closure) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const at::NoGradGuard no_grad;
  std::vector<size_t> sizes;
  for (const auto& group : optimizer_.param_groups()) sizes.push_back(group.params().size());
  if (sizes != group_sizes_) arranged_ = arrange();
  for (const auto& unit : units_) unit->put_gradients_back();
  if (!arranged_ || !enter()) {
    leave_to_masters(arranged_ ? "amsgrad" : "it has parameters of no prepared model");
    if (found_inf_.defined()) {
      by_masters_.step_unless(found_inf_);
    } else {
      by_masters_.step(nullptr);
    }
    return loss;
  }
  const std::vector<Run> made = runs(updated_);
  make_scalars(made.size());
  const bool recording = device::ReplayActions::current() != nullptr;
  if (recording) {
    follow_replays(made);
  } else {
    for (size_t i = 0; i < made.size(); ++i) {
      write_rate(scalars_[i], made[i]);
      const int64_t wanted = count_of(places_[made[i].first]) + 1;
      scalars_[i].count.fill_(static_cast<double>(wanted));
      scalars_[i].known_count = wanted;
    }
  }
  std::vector<FlatUnit::Clip> clips;
  for (const auto& unit : units_) clips.push_back(unit->take_clip());
  for (size_t i = 0; i < made.size(); ++i) {
    update(made[i], scalars_[i], clips[places_[made[i].first].unit]);
    if (!recording) continue;
    if (found_inf_.defined()) {
      scalars_[i].count.add_(found_inf_.eq(0));
    } else {
      scalars_[i].count.add_(1);
    }
  }
  if (!recording) count(1);
  launches_ = made.size();
  made_by_masters_ = false;
  return loss;
}

void FlatAdamWStep::step_unless(const at::Tensor& found_inf) {
  const OverflowWatch watch(found_inf_, found_inf);
  step(nullptr);
}

void FlatAdamWStep::ended(bool skipped) {
  if (made_by_masters_) return by_masters_.ended(skipped);
  if (!skipped) return;
  count(-1);
}

}  // namespace accelerate
