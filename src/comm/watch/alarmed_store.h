// A store whose waits end when the alarm rings.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/watch/alarm.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// Keys of `store` that begin with `prefix`. get() and wait(), by which backends meet the other
// ranks of a group, throw what the alarm throws once it has rung.
class AlarmedStore final : public c10d::PrefixStore {
 public:
  AlarmedStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store,
               std::shared_ptr<const Alarm> alarm);

  std::vector<uint8_t> get(const std::string& key) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;

 private:
  const std::shared_ptr<const Alarm> alarm_;
};

}  // namespace accelerate::comm
