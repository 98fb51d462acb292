// What this rank is doing, for the others to read when something goes wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace accelerate::comm {

// The latest collective of a rank. Ranks that run the same program number theirs alike.
struct CollectiveRecord {
  int64_t sequence = 0;  // 1 for the first, 0 before it
  // What is exchanged, and in brackets behind what the user called, where that is another thing:
  // "loader: next batch from rank 0 (broadcast from 0 Long[])".
  std::string operation = "nothing yet";
  bool finished = true;

  // "12 1 all_reduce float32[10]" and back.
  std::string encode() const;
  static CollectiveRecord decode(const std::string& text);
};

// Keeps the latest collective. Written by the user's thread and those of a backend, read by the
// watching one.
class CollectiveLog {
 public:
  using Clock = std::chrono::steady_clock;

  // Starts the next collective and returns its number.
  int64_t begin(const std::string& operation);
  void end();
  CollectiveRecord latest() const;

  // What the user called, around the collectives that it makes; of several inside each other the
  // first counts. See Activity.
  void enter(const std::string& activity);
  void leave();

  // Around each exchange that a backend has started: returns a number for its end.
  int64_t begin_exchange();
  void end_exchange(int64_t number);
  // Since when the oldest exchange has been under way; nothing while there is none.
  std::optional<Clock::time_point> waiting_since() const;

 private:
  mutable std::mutex mutex_;
  CollectiveRecord latest_;
  std::string activity_;
  int depth_ = 0;  // of activities
  std::map<int64_t, Clock::time_point> exchanges_;
  int64_t next_exchange_ = 0;
};

}  // namespace accelerate::comm
