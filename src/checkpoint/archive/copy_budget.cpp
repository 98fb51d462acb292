#include "checkpoint/archive/copy_budget.h"

#include <algorithm>

namespace accelerate::checkpoint {

bool CopyBudget::take(const at::Tensor& tensor) {
  constexpr double kMost = 4;
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return true;
  // As a double: the product of hostile sizes does not fit into an integer.
  described_ += static_cast<double>(tensor.numel()) * static_cast<double>(tensor.element_size());
  if (storages_.insert(tensor.storage().unsafeGetStorageImpl()).second) {
    held_ += static_cast<double>(tensor.storage().nbytes());
  }
  return described_ <= kMost * held_;
}

bool CopyBudget::take(const StateValue& value) {
  if (const auto* tensor = std::get_if<at::Tensor>(&value.variant())) return take(*tensor);
  if (const auto* list = std::get_if<StateValue::List>(&value.variant())) {
    return std::ranges::all_of(*list, [&](const StateValue& item) { return take(item); });
  }
  if (const auto* dict = std::get_if<StateDict>(&value.variant())) {
    return std::ranges::all_of(dict->entries(),
                               [&](const auto& entry) { return take(entry.second); });
  }
  return true;
}

}  // namespace accelerate::checkpoint
