// What this rank is doing, for the others to read when something goes wrong.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

namespace accelerate::comm {

// The latest collective of a rank. Ranks that run the same program number theirs alike.
struct CollectiveRecord {
  int64_t sequence = 0;  // 1 for the first, 0 before it
  std::string operation = "nothing yet";
  bool finished = true;

  // "12 1 all_reduce float32[10]" and back.
  std::string encode() const;
  static CollectiveRecord decode(const std::string& text);
};

// Keeps the latest collective. Written by the user's thread, read by the watching one.
class CollectiveLog {
 public:
  // Starts the next collective and returns its number.
  int64_t begin(std::string operation);
  void end();
  CollectiveRecord latest() const;

 private:
  mutable std::mutex mutex_;
  CollectiveRecord latest_;
};

}  // namespace accelerate::comm
