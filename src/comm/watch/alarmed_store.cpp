#include "comm/watch/alarmed_store.h"

#include <thread>
#include <utility>

namespace accelerate::comm {

AlarmedStore::AlarmedStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store,
                           std::shared_ptr<const Alarm> alarm)
    : c10d::PrefixStore(std::move(prefix), std::move(store)), alarm_(std::move(alarm)) {}

std::vector<uint8_t> AlarmedStore::get(const std::string& key) {
  wait({key});
  return c10d::PrefixStore::get(key);
}

std::vector<std::vector<uint8_t>> AlarmedStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys);
  return c10d::PrefixStore::multiGet(keys);
}

void AlarmedStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void AlarmedStore::wait(const std::vector<std::string>& keys,
                        const std::chrono::milliseconds& timeout) {
  constexpr std::chrono::milliseconds kPause{2};
  const auto give_up = std::chrono::steady_clock::now() + timeout;
  while (!check(keys)) {
    alarm_->require_silence();
    // With no time left: throws what the store throws.
    if (std::chrono::steady_clock::now() > give_up) return c10d::PrefixStore::wait(keys, kPause);
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace accelerate::comm
