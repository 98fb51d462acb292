#include "compat/c10d.h"

#include <c10/util/Exception.h>
#include <gloo/common/error.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <vector>

namespace accelerate::compat {

bool is_communication_failure(const std::exception& error) {
  return dynamic_cast<const c10::DistError*>(&error) != nullptr ||
         dynamic_cast<const ::gloo::Exception*>(&error) != nullptr;
}

bool is_refusal(const std::exception& error) {
  return dynamic_cast<const c10::Error*>(&error) != nullptr && !is_communication_failure(error);
}

std::string to_bytes(const c10::IValue& value) {
  const std::vector<char> bytes = torch::jit::pickle_save(value);
  return {bytes.begin(), bytes.end()};
}

c10::IValue from_bytes(const std::string& bytes) {
  return torch::jit::pickle_load(std::vector<char>(bytes.begin(), bytes.end()));
}

}  // namespace accelerate::compat
