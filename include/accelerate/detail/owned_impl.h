// What an object owns that can be moved from. Internal: users do not call it.
#pragma once

#include <memory>
#include <utility>

#include "accelerate/export.h"

namespace accelerate::detail {

// Throws UsageError: `owner` was moved from.
[[noreturn]] ACCELERATE_EXPORT void refuse_moved_from(const char* owner);

// A std::unique_ptr that is never dereferenced when null: a call on a moved-from object is
// a UsageError that names its class.
template <class Impl>
class OwnedImpl {
 public:
  OwnedImpl(std::unique_ptr<Impl> impl, const char* owner)
      : impl_(std::move(impl)), owner_(owner) {}

  Impl* get() const {
    if (!impl_) refuse_moved_from(owner_);
    return impl_.get();
  }
  Impl* operator->() const { return get(); }
  Impl& operator*() const { return *get(); }

 private:
  std::unique_ptr<Impl> impl_;
  const char* owner_;
};

}  // namespace accelerate::detail
