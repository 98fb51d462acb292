#include "accelerate/flat_parameters.h"

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"

namespace accelerate {
namespace {

// Each parameter begins at a multiple of so many elements: 128 bytes in half precision, which
// matrix kernels like.
constexpr int64_t kAlignment = 64;

int64_t padded(int64_t numel) { return (numel + kAlignment - 1) / kAlignment * kAlignment; }

std::vector<at::Tensor> distinct_parameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> parameters;
  std::unordered_set<const void*> seen;
  for (const at::Tensor& parameter : module.parameters()) {
    if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second)
      continue;
    parameters.push_back(parameter);
  }
  std::ranges::stable_partition(parameters, [](const at::Tensor& p) { return p.dim() >= 2; });
  return parameters;
}

void require_one_kind(const std::vector<at::Tensor>& parameters, at::ScalarType dtype) {
  if (parameters.empty()) {
    throw UsageError(
        {.what = "the module has no parameter that needs a gradient", .where = "FlatParameters"});
  }
  if (dtype != at::kFloat && dtype != at::kHalf && dtype != at::kBFloat16) {
    throw UsageError({.what = std::string("flat parameters cannot be ") + c10::toString(dtype),
                      .where = "FlatParametersOptions::dtype",
                      .hint = "kFloat, kHalf or kBFloat16"});
  }
  for (const at::Tensor& parameter : parameters) {
    if (parameter.device() != parameters[0].device() || !parameter.is_floating_point() ||
        parameter.layout() != c10::kStrided) {
      throw UsageError({.what = "flat parameters are dense, of floating point and on one device",
                        .where = "FlatParameters",
                        .hint = "move the module to its device first"});
    }
  }
}

}  // namespace

FlatParameters::FlatParameters(torch::nn::Module& module, const FlatParametersOptions& options)
    : parameters_(distinct_parameters(module)) {
  require_one_kind(parameters_, options.dtype);
  const at::NoGradGuard no_grad;
  int64_t total = 0;
  for (const at::Tensor& parameter : parameters_) {
    total += padded(parameter.numel());
    if (parameter.dim() >= 2) matrix_numel_ = total;
  }
  const auto place = at::TensorOptions(parameters_[0].device());
  values_ = at::zeros({total}, place.dtype(options.dtype));
  gradient_ = at::zeros({total}, place.dtype(at::kFloat));
  if (options.masters && options.dtype != at::kFloat) {
    masters_ = at::zeros({total}, place.dtype(at::kFloat));
  }
  int64_t first = 0;
  for (at::Tensor& parameter : parameters_) {
    const auto part = [&](const at::Tensor& vector) {
      return vector.narrow(0, first, parameter.numel()).view(parameter.sizes());
    };
    const at::Tensor value = part(values_).copy_(parameter);
    if (masters_.defined()) part(masters_).copy_(parameter);
    parameter.set_data(value);
    gradient_parts_.push_back(part(gradient_));
    parameter.mutable_grad() = gradient_parts_.back();
    first += padded(parameter.numel());
  }
}

void FlatParameters::require_in_place() const {
  const auto* begin = static_cast<const char*>(values_.data_ptr());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const int64_t place = gradient_parts_[i].storage_offset() * values_.element_size();
    if (parameters_[i].data_ptr() == begin + place) continue;
    throw UsageError({.what = "parameter " + std::to_string(i) + " of " +
                              std::to_string(parameters_.size()) +
                              " does not lie in the flat vector any more: updates would not reach "
                              "the module",
                      .where = "FlatParameters",
                      .hint = "move, cast and load the module before FlatParameters is made"});
  }
}

void FlatParameters::zero_grad() {
  gradient_.zero_();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].mutable_grad() = gradient_parts_[i];
  }
}

void FlatParameters::collect_gradients() {
  require_in_place();
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (gradient.is_same(gradient_parts_[i])) continue;
    if (gradient.defined()) {
      gradient_parts_[i].copy_(gradient);
    } else {
      gradient_parts_[i].zero_();
    }
    gradient = gradient_parts_[i];
  }
}

void FlatParameters::average_gradients(Communicator& communicator) {
  collect_gradients();
  if (communicator.world_size() > 1) communicator.all_reduce(gradient_, ReduceOp::kMean);
}

void FlatParameters::broadcast(Communicator& communicator) {
  if (communicator.world_size() == 1) return;
  communicator.broadcast(values_);
  if (masters_.defined()) communicator.broadcast(masters_);
}

void FlatParameters::refresh_from_masters() {
  if (masters_.defined()) values_.copy_(masters_);
}

}  // namespace accelerate
