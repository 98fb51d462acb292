#include "comm/alarm.h"

#include <utility>

#include "compat/c10d.h"

namespace accelerate::comm {

void Alarm::listen(Listener listener) {
  std::unique_lock lock(mutex_);
  if (!why_) {
    listeners_.push_back(std::move(listener));
    return;
  }
  lock.unlock();
  listener(why_);
}

void Alarm::ring(const std::string& why) {
  std::vector<Listener> listeners;
  {
    const std::lock_guard lock(mutex_);
    if (why_) return;
    why_ = compat::make_communication_failure(why);
    listeners.swap(listeners_);
  }
  for (const Listener& listener : listeners) listener(why_);
}

}  // namespace accelerate::comm
