#include "compat/c10d.h"

#include <c10/util/Exception.h>
#include <gloo/common/error.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <vector>

#include "accelerate/log.h"

namespace accelerate::compat {

bool is_communication_failure(const std::exception& error) {
  return dynamic_cast<const c10::DistError*>(&error) != nullptr ||
         dynamic_cast<const ::gloo::Exception*>(&error) != nullptr;
}

std::exception_ptr make_communication_failure(const std::string& what) {
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, what));
}

// The type information of Gloo's classes is private to libtorch, so a sanitizer cannot compare it.
__attribute__((no_sanitize("vptr"))) void GlooBackend::close_connections() noexcept {
  for (const auto& context : contexts_) {
    try {
      context->closeConnections();
    } catch (const std::exception& error) {
      log(LogLevel::kWarning, std::string("a connection was not closed: ") + error.what());
    }
  }
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
