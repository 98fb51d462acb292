#include "checkpoint/archive/state_value_copy.h"

namespace accelerate {

StateDict cloned(const StateDict& state) {
  StateDict copy;
  for (const auto& [key, value] : state.entries()) copy.set(key, cloned(value));
  return copy;
}

StateValue cloned(const StateValue& value) {
  if (const auto* tensor = std::get_if<at::Tensor>(&value.variant())) {
    return tensor->defined() ? tensor->detach().clone() : *tensor;
  }
  if (const auto* dict = std::get_if<StateDict>(&value.variant())) return cloned(*dict);
  if (const auto* list = std::get_if<StateValue::List>(&value.variant())) {
    StateValue::List copy;
    for (const StateValue& item : *list) copy.push_back(cloned(item));
    return copy;
  }
  return value;
}

}  // namespace accelerate
