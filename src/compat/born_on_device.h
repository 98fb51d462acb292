// Tensors that are made on another device than the program says.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace accelerate::compat {

// While it lives, tensors that this thread makes out of nothing on the CPU are on `device`. Random
// numbers are drawn from the CPU's generator. One at a time for a thread: UsageError.
class BirthScope {
 public:
  explicit BirthScope(c10::Device device);
  ~BirthScope();
  BirthScope(const BirthScope&) = delete;
  BirthScope& operator=(const BirthScope&) = delete;

 private:
  c10::impl::IncludeDispatchKeyGuard redirects_;
};

}  // namespace accelerate::compat
