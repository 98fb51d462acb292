#include "comm/watch/alarm.h"

#include <utility>

#include "compat/c10d.h"

namespace accelerate::comm {

Alarm::Registration Alarm::listen(Listener listener) {
  auto registration = std::make_shared<const Listener>(std::move(listener));
  std::unique_lock lock(mutex_);
  if (!why_) {
    std::erase_if(listeners_, [](const auto& other) { return other.expired(); });
    listeners_.push_back(registration);
    return registration;
  }
  lock.unlock();
  (*registration)(why_);
  return registration;
}

void Alarm::require_silence() const {
  const std::lock_guard lock(mutex_);
  if (why_) std::rethrow_exception(why_);
}

void Alarm::ring(const std::string& why) {
  std::vector<std::weak_ptr<const Listener>> listeners;
  {
    const std::lock_guard lock(mutex_);
    if (why_) return;
    why_ = compat::make_communication_failure(why);
    listeners.swap(listeners_);
  }
  for (const auto& listener : listeners) {
    if (const Registration held = listener.lock()) (*held)(why_);
  }
}

}  // namespace accelerate::comm
