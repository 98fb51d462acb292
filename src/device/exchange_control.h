// The exchanges of a device that run on after the calls which began them have returned.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace accelerate::device {

// What a library such as NCCL says of the exchanges of one group, and how they are ended. Any
// thread may call; nothing throws, unless out of memory.
class ExchangeControl {
 public:
  ExchangeControl() = default;
  virtual ~ExchangeControl() = default;
  ExchangeControl(const ExchangeControl&) = delete;
  ExchangeControl& operator=(const ExchangeControl&) = delete;

  // How many were begun, and how many of these have ended on the device, from whatever the counts
  // start with. May lag a tenth of a second behind.
  struct Progress {
    int64_t begun = 0;
    int64_t ended = 0;
    bool is_idle() const { return ended >= begun; }
  };
  virtual Progress progress() const noexcept = 0;

  // An exchange that has just been queued. Ranks that make the same calls give it the same number,
  // by which Progress counts too: `ended` is that of the latest one that is over.
  struct Begun {
    int64_t number = 0;
    std::string_view name{};  // "allreduce"
    int64_t bytes = 0;        // that each rank gives, or takes from the root
    int root = 0;
  };
  using OnBegin = std::function<void(const Begun& exchange)>;
  // Has `on_begin` called for each exchange from here on, on the thread that begins it; null: for
  // none. It must not wait, and outlives the exchanges or is taken back. Before the first exchange,
  // or between two.
  virtual void listen(OnBegin on_begin) = 0;

  // Why no exchange of this group can succeed any more, as far as the library has noticed: "timed
  // out"; empty while all is well.
  virtual std::string trouble() const noexcept = 0;

  // Ends all exchanges on this rank at once. What waits for the device wakes, what was queued
  // behind them runs on values that mean nothing, and whatever is begun later fails. Waits for no
  // other rank; returns within seconds.
  virtual void abort() noexcept = 0;

  // Waits, for `limit` at most, until no exchange is under way, and closes the connections in
  // order; aborts if one still is. Only the first end() or abort() counts.
  virtual void end(std::chrono::milliseconds limit) noexcept = 0;
};

}  // namespace accelerate::device
