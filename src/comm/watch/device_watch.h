// Watches exchanges that a device still works on after their calls have returned.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/events.h"
#include "comm/watch/alarm.h"
#include "comm/watch/collective_log.h"
#include "device/exchange_control.h"

namespace accelerate::comm {

// Of one group. With NCCL, a call returns when its exchange is queued: the host may be steps ahead
// of it, or block in a copy that no collective knows of. So a thread looks at the device ten times
// a second. While an exchange is under way there, the log says that its collective runs, by which
// the peer watch finds those that wait for a rank that has gone, and the board of the log shows the
// oldest one from the second look on, as it shows those of the host; what the library below reports
// of its own (a timeout, a broken connection) is passed on; and when the alarm rings, exchanges are
// aborted, so that whoever waits for the device wakes.
class DeviceWatch {
 public:
  static constexpr std::chrono::milliseconds kPollInterval{100};

  // Called at most once, by the thread of the watch: exchanges fail with `cause`, of which the
  // oldest was begun no later than `collective` of the log.
  using OnTrouble = std::function<void(int64_t collective, const std::string& cause)>;

  DeviceWatch(std::shared_ptr<device::ExchangeControl> control, std::shared_ptr<Alarm> alarm,
              std::shared_ptr<CollectiveLog> log, OnTrouble on_trouble);
  // Stops looking; exchanges stay as they are. Waits for a call of OnTrouble that is under way.
  ~DeviceWatch();
  DeviceWatch(const DeviceWatch&) = delete;
  DeviceWatch& operator=(const DeviceWatch&) = delete;

  // Waits until all exchanges have ended on the device, the alarm has rung or `limit` has passed,
  // and aborts those that are still under way when it has. Returns whether all is well. Any thread;
  // does not throw.
  bool finish(std::chrono::milliseconds limit) noexcept;
  // Whether there was any exchange.
  bool was_used() const noexcept;

 private:
  // The latest exchanges, by number, as they were begun. A host that is further ahead than these
  // leaves nothing to say of the oldest.
  class Begun {
   public:
    void add(int64_t number, const Event& exchange);
    // The first one behind number `ended`; nothing if it is not known.
    std::optional<Event> first_after(int64_t ended) const;

   private:
    static constexpr size_t kMost = 256;
    struct Entry {
      int64_t number = -1;
      Event exchange{};
    };
    mutable std::mutex mutex_;
    std::array<Entry, kMost> entries_{};
    size_t next_ = 0;
  };

  void run();
  void look();
  void end_shown();

  const std::shared_ptr<device::ExchangeControl> control_;
  const std::shared_ptr<Alarm> alarm_;
  const std::shared_ptr<CollectiveLog> log_;
  const OnTrouble on_trouble_;
  const int64_t begun_at_first_;  // exchanges
  const std::shared_ptr<Begun> begun_ = std::make_shared<Begun>();
  // The thread's own:
  bool was_idle_ = true;
  int64_t ended_ = 0;                           // exchanges, as of the last look
  int64_t oldest_ = 0;                          // collective of the log that the device works on
  std::optional<CollectiveLog::Wait> shown_{};  // of the oldest exchange
  bool told_ = false;

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool stopping_ = false;

  Alarm::Registration registration_;
  std::thread thread_;
};

}  // namespace accelerate::comm
