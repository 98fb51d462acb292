#include "comm/watch/first_values.h"

#include <sstream>

#include "accelerate/log.h"

namespace accelerate::comm {
namespace {

// What "3 5 keyvalue", one after the other, says.
std::map<std::string, std::string> decode_values(const std::string& text) {
  std::map<std::string, std::string> values;
  std::istringstream stream(text);
  size_t key_size = 0;
  size_t value_size = 0;
  while (stream >> key_size >> value_size && stream.get() == ' ') {
    std::string key(key_size, ' ');
    std::string value(value_size, ' ');
    stream.read(key.data(), static_cast<std::streamsize>(key_size));
    stream.read(value.data(), static_cast<std::streamsize>(value_size));
    if (!stream) break;
    values[key] = value;
  }
  return values;
}

}  // namespace

std::optional<FirstValue> FirstValues::put(WatchStore& store, const std::string& key,
                                           const std::string& value) {
  // As far behind may another rank be: hosts run ahead where collectives only queue on a device.
  constexpr size_t kMostRemembered = 64;
  const std::string stored = store.put_first(key, std::to_string(rank_) + " " + value);
  if (rank_ == 0) {
    remembered_.emplace_back(key, stored);
    if (remembered_.size() > kMostRemembered) {
      store.remove(remembered_.front().first);
      remembered_.pop_front();
    }
  }
  return of_another(stored);
}

std::string FirstValues::left_by_rank_zero() const {
  std::string text;
  for (const auto& [key, value] : remembered_) {
    text += std::to_string(key.size()) + ' ' + std::to_string(value.size()) + ' ' + key + value;
  }
  return text;
}

void FirstValues::take(const std::string& left) {
  auto values = decode_values(left);
  const std::lock_guard lock(mutex_);
  last_values_ = std::move(values);
}

std::optional<FirstValue> FirstValues::last(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = last_values_.find(key);
  if (found != last_values_.end()) return of_another(found->second);
  if (!std::exchange(told_of_end_, true) && rank_ != 0) {
    log(LogLevel::kWarning,
        "rank 0 has gone, and with it what the ranks compare: from here on nobody notices if "
        "the parameters of this rank differ from those of the others");
  }
  return std::nullopt;
}

std::optional<FirstValue> FirstValues::of_another(const std::string& stored) const {
  const size_t blank = stored.find(' ');
  if (blank == std::string::npos) return std::nullopt;
  const int first = std::stoi(stored.substr(0, blank));
  if (first == rank_) return std::nullopt;
  return FirstValue{.rank = first, .value = stored.substr(blank + 1)};
}

}  // namespace accelerate::comm
