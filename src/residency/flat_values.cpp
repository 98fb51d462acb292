// The values of a flat unit and their masters.
#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "accelerate/errors.h"
#include "residency/flat_unit.h"

namespace accelerate::residency {

// By bits: what is not a number equals nothing, not even itself.
at::Tensor with_written_values(const at::Tensor& masters, const at::Tensor& values,
                               const at::Tensor& known) {
  const at::ScalarType bits = values.element_size() == 4 ? at::kInt : at::kShort;
  const at::Tensor was_written = values.view(bits).ne(known.view(bits));
  return at::where(was_written, values.to(at::kFloat), masters);
}

void FlatUnit::add_user(const std::shared_ptr<MasterUser>& user) {
  std::erase_if(users_, [](const auto& known) { return known.expired(); });  // it follows them
  users_.push_back(user);
  const bool can_tell = !user->may_have_updated(/*passed=*/true);
  if (can_tell || !masters_.defined() || rounded_.defined()) return;
  const at::NoGradGuard no_grad;
  adopt_written_values();
  rounded_ = values_.clone();
}

void FlatUnit::note_pass() {
  passed_ = true;
  const auto is_gone = [](const auto& user) { return user.expired(); };
  if (!masters_.defined() || rounded_.defined() || std::ranges::none_of(users_, is_gone)) return;
  // Its optimizer may go on by itself: what it does is told from values that are written by these.
  const at::NoGradGuard no_grad;
  adopt_written_values();
  rounded_ = values_.clone();
}

void FlatUnit::masters_to_values() {
  passed_ = false;
  if (!masters_.defined()) return;
  const at::NoGradGuard no_grad;
  values_.copy_(masters_);
  note_rounded(0, numel());
  // What was written to parameters before is overwritten.
  for (size_t i = 0; i < parameters_.size(); ++i) versions_[i] = parameters_[i]._version();
}

void FlatUnit::note_rounded(int64_t begin, int64_t end) {
  if (!rounded_.defined()) return;
  const at::NoGradGuard no_grad;
  rounded_.narrow(0, begin, end - begin).copy_(masters_.narrow(0, begin, end - begin));
}

// Together with what is known of them: no value was written that a master would have to follow.
void FlatUnit::values_updated(const std::vector<size_t>& indices) {
  passed_ = false;
  for (const size_t i : indices) {
    at::TensorImpl* parameter = parameters_[i].unsafeGetTensorImpl();
    const bool is_known = versions_[i] == static_cast<int64_t>(parameters_[i]._version());
    if (!parameter->is_inference()) parameter->bump_version();
    if (is_known) versions_[i] = parameters_[i]._version();
  }
}

std::vector<int64_t> FlatUnit::versions_of_values() const {
  std::vector<int64_t> versions;
  if (masters_.defined()) {
    for (const at::Tensor& parameter : parameters_) versions.push_back(parameter._version());
  }
  return versions;
}

void FlatUnit::require_in_place(const char* where) const {
  const auto* begin_of_all = static_cast<const char*>(values_.const_data_ptr());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].numel() == 0) continue;
    if (parameters_[i].const_data_ptr() == begin_of_all + begin(i) * values_.element_size())
      continue;
    throw UsageError({.what = "parameter '" + names_[i] +
                              "' does not lie in the flat vector any more: updates would not reach "
                              "the module",
                      .where = where,
                      .hint = "move, cast and torch::load the module before prepare(); "
                              "load_state() and load_checkpoint_in_model() may come later"});
  }
}

void FlatUnit::adopt_between(int64_t begin, int64_t end) {
  if (!masters_.defined() || begin == end) return;
  const at::NoGradGuard no_grad;
  const auto cut = [&](const at::Tensor& vector) { return vector.narrow(0, begin, end - begin); };
  const at::Tensor values = cut(values_);
  const at::Tensor masters = cut(masters_);
  const bool keeps_rounded = rounded_.defined();
  const at::Tensor known = keeps_rounded ? cut(rounded_) : masters.to(values.scalar_type());
  masters.copy_(with_written_values(masters, values, known));
  if (keeps_rounded) cut(rounded_).copy_(values);
}

void FlatUnit::adopt_written_values() { adopt_between(0, numel()); }
void FlatUnit::adopt_written_values(size_t index) { adopt_between(begin(index), end(index)); }

void FlatUnit::adopt_changed_values() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t version = parameters_[i]._version();
    if (std::exchange(versions_[i], version) != version) adopt_written_values(i);
  }
}

FlatUnit::Moved FlatUnit::moved_by_users() const {
  Moved moved;
  for (const auto& weak : users_) {
    const auto user = weak.lock();
    if (!user) {  // its optimizer may go on by itself
      moved.unknown = passed_;
      continue;
    }
    moved.maybe = moved.maybe || user->may_have_updated(passed_);
    moved.surely = moved.surely || user->may_have_updated(/*passed=*/false);
  }
  return moved;
}

void FlatUnit::refresh(const char* where) {
  require_in_place(where);
  adopt_changed_values();
  if (!masters_.defined()) return;
  const Moved moved = moved_by_users();
  // A clip is left to the one that is there: nobody else has made a step with it.
  if (!moved.maybe && (!moved.unknown || has_clip())) return;
  if (has_clip()) {
    throw UsageError({.what = "the optimizer that was given to prepare() has made a step with "
                              "gradients that clip_grad_norm_ left to the prepared one",
                      .where = where,
                      .hint = "call step() of what prepare() returned"});
  }
  if (rounded_.defined()) adopt_written_values();
  // Where nothing tells, a graph of the pass before this one must not be refused for it.
  moved.surely ? masters_moved() : masters_to_values();
  if (!moved.surely && !rounded_.defined()) rounded_ = values_.clone();
  for (const auto& weak : users_) {
    if (const auto user = weak.lock()) user->updates_seen();
  }
}

void FlatUnit::masters_moved() {
  masters_to_values();
  std::vector<size_t> all(parameters_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  values_updated(all);
}

void FlatUnit::release() {
  if (std::exchange(released_, true)) return;
  const at::NoGradGuard no_grad;
  clip_ = {};
  withdraw_gradients();
  adopt_changed_values();
  const Moved moved = moved_by_users();
  if (rounded_.defined() || (!moved.maybe && !moved.unknown)) adopt_written_values();
  for (size_t i = 0; i < master_parts_.size(); ++i) {
    const at::Tensor gradient = parameters_[i].grad();
    parameters_[i].mutable_grad().reset();
    parameters_[i].set_data(master_parts_[i].variable_data());
    parameters_[i].mutable_grad() = gradient;
  }
  for (const auto& weak : users_) {
    if (const auto user = weak.lock()) user->unit_released();
  }
  values_ = at::Tensor();
  rounded_ = at::Tensor();
}

}  // namespace accelerate::residency
