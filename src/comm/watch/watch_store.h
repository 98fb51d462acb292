// What the watches of the ranks tell each other through the store of the job.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "comm/watch/diagnosis.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// What all ranks are told: that one of them has failed, or that rank 0, and with it the store,
// goes.
enum class WatchCall { kNone, kAlarm, kGoodbye, kGoodbyeAfterError };

// One thread. All members throw when the store does not answer, which means that it was lost with
// rank 0, and wait for nothing else unless they say so.
class WatchStore {
 public:
  WatchStore(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size);

  WatchCall call() const;
  void raise_alarm();

  // What this rank does, for those that look for the cause of a failure; and what another has said.
  void publish_record(const std::string& record);
  std::optional<std::string> record_of(int rank) const;

  // The first finding stays: a rank that fails later sees only the ruins. Returns what stands.
  // `readers` is the number of ranks that will read it, this one included.
  Diagnosis put_diagnosis(const Diagnosis& own, int64_t readers);
  std::optional<Diagnosis> diagnosis() const;
  // Counts this rank among those that know it; once, however often it is called.
  void count_as_informed();
  // Once there is a diagnosis: returns when all its readers know it, or after `limit`.
  void wait_until_informed(std::chrono::milliseconds limit);

  // Puts `value` under `key` unless there is something; returns what is there then.
  std::string put_first(const std::string& key, const std::string& value);
  std::optional<std::string> look_up(const std::string& key) const;
  void remove(const std::string& key);

  // Of a rank that is not 0: it needs the store no more.
  void say_goodbye(bool after_error);
  // How a rank has said goodbye.
  std::optional<RankEnd> goodbye_of(int rank) const;
  // Of rank 0: leaves `last_values` and waits until the others have left or taken them, at most for
  // `limit`.
  void close(bool after_error, const std::string& last_values, std::chrono::milliseconds limit);
  // Of the others, after a goodbye of rank 0: what it has left. The store may go from here on.
  std::string take_last_values();

 private:
  // Until the counter `key` has reached `count`.
  void wait_for_count(const char* key, int64_t count, std::chrono::milliseconds limit);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int rank_;
  const int world_size_;
  bool informed_ = false;
};

}  // namespace accelerate::comm
