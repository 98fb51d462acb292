// The exchanges of a device that run on after the calls which began them have returned.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace accelerate::device {

// What a library such as NCCL says of the exchanges of one group, and how they are ended. Any
// thread may call; nothing throws.
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
