#include "residency/flat_unit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::residency {
namespace {

// Each parameter begins at a multiple of so many elements: 128 bytes in half precision, which
// matrix kernels like.
constexpr int64_t kAlignment = 64;

int64_t padded(int64_t numel) { return (numel + kAlignment - 1) / kAlignment * kAlignment; }

bool is_flat_type(at::ScalarType type) {
  return type == at::kFloat || type == at::kHalf || type == at::kBFloat16;
}

void require_one_kind(const std::vector<at::Tensor>& parameters,
                      const std::vector<std::string>& names) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i];
    if (parameter.layout() == c10::kStrided && is_flat_type(parameter.scalar_type()) &&
        parameter.device() == parameters[0].device()) {
      continue;
    }
    throw UsageError({.what = "parameter '" + names[i] + "' is " +
                              c10::toString(parameter.scalar_type()) + " on " +
                              parameter.device().str() +
                              "; flat parameters are dense, on one device, and 16 or 32-bit floats",
                      .where = "AcceleratorOptions::flat",
                      .hint = "leave flat out for this model, or bring its parameters together"});
  }
}

std::vector<size_t> matrices_first(const std::vector<at::Tensor>& parameters) {
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_partition(order, [&](size_t i) { return parameters[i].dim() >= 2; });
  return order;
}

}  // namespace

at::Tensor part_of(const at::Tensor& vector, int64_t begin, at::IntArrayRef sizes) {
  auto* memory = static_cast<char*>(vector.data_ptr()) + begin * vector.element_size();
  return at::from_blob(
      memory, sizes, [vector](void*) {}, vector.options());
}

FlatUnit::FlatUnit(std::vector<at::Tensor> parameters, std::vector<std::string> names,
                   const FlatOptions& options)
    : options_(options) {
  require_one_kind(parameters, names);
  for (const size_t i : matrices_first(parameters)) {
    places_.push_back(places_.back() + padded(parameters[i].numel()));
    if (parameters[i].dim() >= 2) matrix_numel_ = places_.back();
    parameters_.push_back(std::move(parameters[i]));
    names_.push_back(std::move(names[i]));
  }
  const at::NoGradGuard no_grad;
  const auto place = at::TensorOptions(parameters_[0].device());
  values_ = at::zeros({numel()}, place.dtype(options.dtype));
  gradient_ = at::zeros({numel()}, place.dtype(at::kFloat));
  if (options.masters && options.dtype != at::kFloat) {
    masters_ = at::zeros({numel()}, place.dtype(at::kFloat));
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i];
    const auto part = [&](const at::Tensor& vector) {
      return part_of(vector, begin(i), parameter.sizes());
    };
    const at::Tensor own = std::exchange(parameter.mutable_grad(), at::Tensor());
    gradient_parts_.push_back(part(gradient_));
    gradients_.emplace_back();
    if (masters_.defined()) {
      at::Tensor master = part(masters_).copy_(parameter);
      master.set_requires_grad(true);
      indices_.emplace(master.unsafeGetTensorImpl(), i);
      master_parts_.push_back(std::move(master));
    }
    parameter.set_data(part(values_).copy_(parameter));
    if (own.defined()) {
      gradient_parts_[i].copy_(own);
      place_gradient(i, GradientState::kThere);
    }
    indices_.emplace(parameter.unsafeGetTensorImpl(), i);
    versions_.push_back(parameter._version());
  }
}

std::optional<size_t> FlatUnit::find(const at::Tensor& tensor) const {
  const auto found = indices_.find(tensor.unsafeGetTensorImpl());
  return found == indices_.end() ? std::nullopt : std::optional(found->second);
}

bool FlatUnit::is_covered_by(at::TensorList tensors, std::vector<at::Tensor>& others) const {
  std::unordered_set<size_t> seen;
  for (const at::Tensor& tensor : tensors) {
    if (const auto index = find(tensor)) {
      seen.insert(*index);
    } else {
      others.push_back(tensor);
    }
  }
  return seen.size() == parameters_.size();
}

void FlatUnit::place_gradient(size_t index, GradientState state) {
  const at::Tensor& part = gradient_parts_[index];
  const auto place = [&](at::Tensor& gradient) {
    if (!gradient.is_same(part)) gradient = part;
  };
  place(parameters_[index].mutable_grad());
  if (!master_parts_.empty()) place(master_parts_[index].mutable_grad());
  gradients_[index] = {.state = state, .offered_version = static_cast<int64_t>(part._version())};
}

void FlatUnit::remove_gradient(size_t index) {
  parameters_[index].mutable_grad().reset();
  if (!master_parts_.empty()) master_parts_[index].mutable_grad().reset();
  gradients_[index].state = GradientState::kNone;
}

void FlatUnit::mirror_dropped_gradients() {
  for (size_t i = 0; i < master_parts_.size(); ++i) {
    if (!has_gradient(i)) continue;
    at::Tensor& of_master = master_parts_[i].mutable_grad();
    at::Tensor& of_parameter = parameters_[i].mutable_grad();
    // One that came later is no part of the vector yet.
    const bool was_dropped = !of_parameter.defined() ||
                             (!of_master.defined() && of_parameter.is_same(gradient_parts_[i]));
    if (!was_dropped) continue;
    of_master.reset();
    of_parameter.reset();
  }
}

void FlatUnit::put_gradients_back() {
  withdraw_gradients();  // of a pass that threw
  std::vector<size_t> dropped;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor given = parameters_[i].grad();
    if (!given.defined() && !has_gradient(i)) given = master(i).grad();
    if (given.defined()) {
      if (!given.is_same(gradient_parts_[i])) gradient_parts_[i].copy_(given);
      place_gradient(i, GradientState::kThere);
    } else if (has_gradient(i)) {
      dropped.push_back(i);
    }
  }
  if (!dropped.empty()) drop_gradients(dropped);
}

void FlatUnit::offer_gradients() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    place_gradient(i, has_gradient(i) ? GradientState::kThere : GradientState::kOffered);
  }
}

bool FlatUnit::was_added_to(size_t index) const {
  // A pass that keeps its own graph replaces gradients.
  return !parameters_[index].grad().is_same(gradient_parts_[index]) ||
         static_cast<int64_t>(gradient_parts_[index]._version()) !=
             gradients_[index].offered_version;
}

std::vector<size_t> FlatUnit::reached() const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (was_added_to(i)) indices.push_back(i);
  }
  return indices;
}

bool FlatUnit::has_foreign_gradients() const {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& own = parameters_[i].grad();
    if (own.defined() && !own.is_same(gradient_parts_[i])) return true;
  }
  return false;
}

void FlatUnit::withdraw_gradients() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (gradients_[i].state != GradientState::kOffered) continue;
    if (was_added_to(i)) {
      gradients_[i].state = GradientState::kThere;
    } else {
      remove_gradient(i);
    }
  }
}

std::vector<size_t> FlatUnit::with_gradient() const {
  std::vector<size_t> indices;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (has_gradient(i)) indices.push_back(i);
  }
  return indices;
}

void FlatUnit::declare_gradients(const std::vector<size_t>& indices) {
  for (const size_t i : indices) place_gradient(i, GradientState::kThere);
}

void FlatUnit::drop_gradients(bool set_to_none) {
  std::vector<size_t> all(parameters_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  drop_gradients(all, set_to_none);
}

void FlatUnit::drop_gradients(const std::vector<size_t>& indices, bool set_to_none) {
  zero_parts(indices);
  std::vector<size_t> gone;
  for (const size_t i : indices) {
    const bool had_one = has_gradient(i) || parameters_[i].grad().defined();
    if (had_one && !set_to_none) {
      place_gradient(i, GradientState::kThere);
    } else {
      gone.push_back(i);
    }
  }
  note_dropped(gone);
}

void FlatUnit::note_dropped(const std::vector<size_t>& indices) {
  for (const size_t i : indices) remove_gradient(i);
}

void FlatUnit::zero_parts(const std::vector<size_t>& indices) {
  const at::NoGradGuard no_grad;
  if (indices.size() == parameters_.size()) {
    clip_ = {};
    gradient_.zero_();
    return;
  }
  settle_clip();
  std::vector<at::Tensor> parts;
  for (const size_t i : indices) parts.push_back(gradient_parts_[i]);
  if (!parts.empty()) at::_foreach_zero_(parts);
}

void FlatUnit::settle_clip() {
  const Clip clip = take_clip();
  if (!clip.norm.defined()) return;
  const at::NoGradGuard no_grad;
  gradient_.mul_((clip.max_norm / (clip.norm + 1e-6)).clamp_max(1.0));
}

bool FlatUnit::update_clips() const {
  const auto is_there = [](const auto& user) { return !user.expired(); };
  // One of several would take the factor for all.
  return update_clips_ && std::ranges::count_if(users_, is_there) == 1;
}

}  // namespace accelerate::residency
