#include "strategy/ddp/trainable_parameters.h"

#include <torch/nn/modules/embedding.h>

#include <unordered_set>

namespace accelerate {

TrainableParameters trainable_parameters(const torch::nn::Module& module) {
  std::unordered_set<const void*> sparse;
  for (const auto& child : module.modules()) {
    if (const auto* embedding = child->as<torch::nn::EmbeddingImpl>();
        embedding != nullptr && embedding->options.sparse()) {
      sparse.insert(embedding->weight.unsafeGetTensorImpl());
    } else if (const auto* bag = child->as<torch::nn::EmbeddingBagImpl>();
               bag != nullptr && bag->options.sparse()) {
      sparse.insert(bag->weight.unsafeGetTensorImpl());
    }
  }
  TrainableParameters result;
  std::unordered_set<const void*> seen;  // tied parameters are reduced once
  for (const auto& item : module.named_parameters()) {
    const void* identity = item.value().unsafeGetTensorImpl();
    if (!item.value().requires_grad() || !seen.insert(identity).second) continue;
    result.tensors.push_back(item.value());
    result.names.push_back(item.key());
    result.sparse.push_back(sparse.count(identity) > 0);
  }
  return result;
}

}  // namespace accelerate
