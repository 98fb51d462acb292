#include "accelerate/empty_weights.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "compat/deferred.h"
#include "compat/touched.h"

namespace accelerate {
namespace {

// Parameters and buffers without memory, each once, with their names.
std::vector<std::pair<std::string, at::Tensor>> tensors_without_memory(
    const torch::nn::Module& module) {
  std::vector<std::pair<std::string, at::Tensor>> found;
  std::unordered_set<const void*> seen;
  const auto add = [&](const auto& items) {
    for (const auto& item : items) {
      const at::Tensor& tensor = item.value();
      if (!tensor.defined() || !tensor.is_meta()) continue;
      if (seen.insert(tensor.unsafeGetTensorImpl()).second) found.emplace_back(item.key(), tensor);
    }
  };
  add(module.named_parameters());
  add(module.named_buffers());
  return found;
}

}  // namespace

class EmptyWeights::Scope {
  compat::DeferScope defers_;
};

EmptyWeights::EmptyWeights() : scope_(std::make_unique<Scope>()) {}
EmptyWeights::~EmptyWeights() = default;

bool has_empty_weights(const torch::nn::Module& module) {
  return !tensors_without_memory(module).empty();
}

void materialize(torch::nn::Module& module, c10::Device device) {
  const compat::OrdinaryTensors ordinary;
  const at::NoGradGuard no_grad;
  auto found = tensors_without_memory(module);
  for (const auto& [name, tensor] : found) {
    if (compat::is_deferred(tensor)) continue;
    throw UsageError({.what = "'" + name +
                              "' is on the meta device, and nothing says which values "
                              "it would have",
                      .where = "materialize",
                      .hint = "build the module inside of init_empty_weights(), or off the meta "
                              "device"});
  }
  std::map<std::shared_ptr<compat::DeferredRecord>, std::vector<at::Tensor>> recorded;
  for (auto& [name, tensor] : found) {
    if (auto record = compat::record_of(tensor)) {
      recorded[std::move(record)].push_back(tensor);
      continue;
    }
    at::Tensor values =
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(device));
    values.copy_(compat::deferred_source(tensor));
    compat::replace_data(tensor, values);
  }
  for (auto& [record, tensors] : recorded) {
    compat::replay(*record, tensors, [&, &tensors = tensors](size_t i, const at::Tensor& values) {
      compat::replace_data(tensors[i], values.to(device));
    });
  }
}

}  // namespace accelerate
