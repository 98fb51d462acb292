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
    at::Tensor gradient = part(gradient_);
    if (parameter.grad().defined()) gradient.copy_(parameter.grad());
    if (masters_.defined()) {
      at::Tensor master = part(masters_).copy_(parameter);
      master.set_requires_grad(true);
      master.mutable_grad() = gradient;
      indices_.emplace(master.unsafeGetTensorImpl(), i);
      master_parts_.push_back(std::move(master));
    }
    parameter.mutable_grad().reset();  // of another type, which set_data() would refuse
    parameter.set_data(part(values_).copy_(parameter));
    parameter.mutable_grad() = gradient;
    gradient_parts_.push_back(std::move(gradient));
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

void FlatUnit::mirror_dropped_gradients() {
  for (size_t i = 0; i < master_parts_.size(); ++i) {
    at::Tensor& of_master = master_parts_[i].mutable_grad();
    at::Tensor& of_parameter = parameters_[i].mutable_grad();
    if (of_master.defined() && of_parameter.defined()) continue;
    of_master.reset();
    of_parameter.reset();
  }
}

void FlatUnit::put_gradients_back() {
  std::vector<size_t> dropped;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!master_parts_.empty()) {
      at::Tensor& of_master = master_parts_[i].mutable_grad();
      if (!of_master.is_same(gradient_parts_[i])) of_master = gradient_parts_[i];
    }
    if (gradient.is_same(gradient_parts_[i])) continue;
    if (gradient.defined()) {
      gradient_parts_[i].copy_(gradient);
      gradient = gradient_parts_[i];
    } else {
      dropped.push_back(i);
    }
  }
  if (!dropped.empty()) zero_gradients(dropped);
}

void FlatUnit::zero_gradients() {
  const at::NoGradGuard no_grad;
  clip_ = {};
  gradient_.zero_();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].mutable_grad() = gradient_parts_[i];
    if (!master_parts_.empty()) master_parts_[i].mutable_grad() = gradient_parts_[i];
  }
}

void FlatUnit::zero_gradients(const std::vector<size_t>& indices) {
  if (indices.size() == parameters_.size()) return zero_gradients();
  settle_clip();
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> parts;
  for (const size_t i : indices) {
    parts.push_back(gradient_parts_[i]);
    parameters_[i].mutable_grad() = gradient_parts_[i];
    if (!master_parts_.empty()) master_parts_[i].mutable_grad() = gradient_parts_[i];
  }
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

void FlatUnit::masters_to_values() {
  passed_ = false;
  if (!masters_.defined()) return;
  const at::NoGradGuard no_grad;
  values_.copy_(masters_);
  // What was written to parameters before is overwritten.
  for (size_t i = 0; i < parameters_.size(); ++i) versions_[i] = parameters_[i]._version();
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

void FlatUnit::adopt_changed_values() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t version = parameters_[i]._version();
    if (std::exchange(versions_[i], version) == version || master_parts_.empty()) continue;
    master_parts_[i].copy_(parameters_[i]);
  }
}

void FlatUnit::refresh(const char* where) {
  require_in_place(where);
  adopt_changed_values();
  if (!masters_.defined()) return;
  bool updated = false;
  for (const auto& weak : users_) {
    const auto user = weak.lock();
    updated = updated || (user && user->may_have_updated(passed_));
  }
  if (!updated) return;
  if (has_clip()) {
    throw UsageError({.what = "the optimizer that was given to prepare() has made a step with "
                              "gradients that clip_grad_norm_ left to the prepared one",
                      .where = where,
                      .hint = "call step() of what prepare() returned"});
  }
  masters_to_values();
  for (const auto& weak : users_) {
    if (const auto user = weak.lock()) user->updates_seen();
  }
}

void FlatUnit::release() {
  if (std::exchange(released_, true)) return;
  const at::NoGradGuard no_grad;
  clip_ = {};
  adopt_changed_values();
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
}

}  // namespace accelerate::residency
