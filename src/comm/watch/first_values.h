// What ranks compare with the first one that said it, also after the store has gone with rank 0.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "comm/watch/watch_store.h"

namespace accelerate::comm {

// What another rank has left in the store.
struct FirstValue {
  int rank = 0;
  std::string value;
};

class FirstValues {
 public:
  explicit FirstValues(int rank) : rank_(rank) {}

  // Puts `value` under `key` unless another rank has put something there: returns that then. Rank 0
  // remembers the latest keys and removes older ones. The thread of `store`; throws as that does.
  std::optional<FirstValue> put(WatchStore& store, const std::string& key,
                                const std::string& value);

  // Of rank 0: what it remembers, for the others to take. The thread of the store.
  std::string left_by_rank_zero() const;
  void take(const std::string& left);

  // Once the store has gone: what rank 0 had under `key`. Where it had nothing, or was lost, this
  // says once that nothing can be compared any more. Any thread.
  std::optional<FirstValue> last(const std::string& key);

 private:
  // Keys, and under each "1 value", where 1 is the rank.
  using Remembered = std::deque<std::pair<std::string, std::string>>;

  std::optional<FirstValue> of_another(const std::string& stored) const;

  const int rank_;
  Remembered remembered_;

  std::mutex mutex_;  // guards what follows
  std::map<std::string, std::string> last_values_;
  bool told_of_end_ = false;
};

}  // namespace accelerate::comm
