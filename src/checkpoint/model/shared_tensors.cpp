#include "checkpoint/model/shared_tensors.h"

#include <c10/core/Device.h>

#include <tuple>
#include <vector>

namespace accelerate::checkpoint {
namespace {

// What makes two tensors one.
using Identity = std::tuple<c10::DeviceType, c10::DeviceIndex, const void*, at::ScalarType,
                            std::vector<int64_t>, std::vector<int64_t>, bool, bool>;

bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.has_storage() &&
         tensor.numel() > 0;
}

Identity identity_of(const at::Tensor& tensor) {
  return {tensor.device().type(), tensor.device().index(), memory_of(tensor), tensor.scalar_type(),
          tensor.sizes().vec(),   tensor.strides().vec(),  tensor.is_conj(),  tensor.is_neg()};
}

}  // namespace

const void* memory_of(const at::Tensor& tensor) {
  if (!tensor.is_meta()) return tensor.data_ptr();
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

DistinctTensors drop_aliases(const NamedTensors& tensors) {
  DistinctTensors distinct;
  distinct.kept.reserve(tensors.size());
  std::map<Identity, std::string> seen;
  for (const auto& item : tensors) {
    if (has_memory(item.value())) {
      const auto [first, is_new] = seen.emplace(identity_of(item.value()), item.key());
      if (!is_new) {
        distinct.aliases.emplace(item.key(), first->second);
        continue;
      }
    }
    distinct.kept.insert(item.key(), item.value());
  }
  return distinct;
}

}  // namespace accelerate::checkpoint
