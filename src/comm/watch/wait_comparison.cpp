#include "comm/watch/wait_comparison.h"

#include <algorithm>
#include <sstream>

#include "comm/watch/rank_record.h"

namespace accelerate::comm {
namespace {

bool is_on_device(const Event& wait) { return (wait.exchange & kExchangeOfDevice) != 0; }

std::string key_of(const GroupEntry& group, const Event& wait) {
  return "wait/" + group.name + '/' + std::to_string(wait.exchange);
}

// Of ranks whose host waits in the collective of `wait`, or whose device does.
std::string side_key(const GroupEntry& group, const Event& wait, bool of_device) {
  return "wait/" + group.name + (of_device ? "/device/" : "/host/") + std::to_string(wait.number);
}

// A rank that waits in an exchange of the host or of a device, and how many of the other kind it
// has begun.
struct WaitOnOneSide {
  int rank = 0;
  uint32_t exchange = 0;
  uint32_t others_begun = 0;
  std::string operation{};

  // "1 4 7 backward" and back.
  std::string encode() const {
    return std::to_string(rank) + ' ' + std::to_string(exchange) + ' ' +
           std::to_string(others_begun) + ' ' + operation;
  }
  static std::optional<WaitOnOneSide> decode(const std::string& text) {
    std::istringstream words(text);
    WaitOnOneSide wait;
    words >> wait.rank >> wait.exchange >> wait.others_begun;
    if (!words) return std::nullopt;
    words.get();
    std::getline(words, wait.operation);
    return wait;
  }
};

}  // namespace

std::optional<Diagnosis> WaitComparison::look(std::chrono::milliseconds time) {
  const auto groups = groups_->all();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  std::set<std::string> under_way;
  for (const Event& wait : events_->board()) {
    if (wait.kind != EventKind::kWaitBegin || wait.operation == 0) continue;
    if (now - std::chrono::nanoseconds(wait.time_ns) < time) continue;
    const auto group = std::ranges::find_if(
        groups, [&](const auto& entry) { return entry->log->group() == wait.group; });
    if (group == groups.end()) continue;  // it has just been let go, or is of another job
    const std::string key = key_of(**group, wait);
    under_way.insert(key);
    if (compared_.contains(key)) continue;
    if (auto difference = compare(**group, wait, key)) return difference;
    if (auto difference = compare_host_and_device(**group, wait)) return difference;
  }
  compared_ = std::move(under_way);
  std::erase_if(left_, [&](const auto& left) {
    if (compared_.contains(left.first)) return false;
    // It has ended, so nobody is in another operation.
    for (const std::string& key : left.second) store_.remove(key);
    return true;
  });
  return std::nullopt;
}

std::optional<Diagnosis> WaitComparison::compare(const GroupEntry& group, const Event& wait,
                                                 const std::string& key) {
  // "1 4711 barrier": rank, operation, text.
  const std::string own =
      std::to_string(rank_) + ' ' + std::to_string(wait.operation) + ' ' + std::string(wait.text());
  const std::string first = store_.put_first(key, own);
  if (first == own) left_[key].push_back(key);
  std::istringstream words(first);
  WaitOfRank other;
  uint32_t operation = 0;
  words >> other.rank >> operation;
  if (!words || operation == wait.operation) return std::nullopt;
  words.get();
  std::getline(words, other.operation);
  return describe({.rank = rank_, .operation = std::string(wait.text())}, other,
                  among(group, world_size_));
}

std::optional<Diagnosis> WaitComparison::compare_host_and_device(const GroupEntry& group,
                                                                 const Event& wait) {
  const bool on_device = is_on_device(wait);
  const CollectiveLog& log = *group.log;
  if (!log.follows_device()) return std::nullopt;  // one side only
  const WaitOnOneSide own{
      .rank = rank_,
      .exchange = wait.exchange & ~kExchangeOfDevice,
      .others_begun = on_device ? log.exchanges_of_host() : log.exchanges_of_device(),
      .operation = std::string(wait.text())};
  const std::string key = side_key(group, wait, on_device);
  if (store_.put_first(key, own.encode()) == own.encode()) {
    left_[key_of(group, wait)].push_back(key);
  }
  const std::optional<std::string> text = store_.look_up(side_key(group, wait, !on_device));
  const auto other = text ? WaitOnOneSide::decode(*text) : std::nullopt;
  if (!other || other->rank == rank_) return std::nullopt;
  if (own.others_begun >= other->exchange || other->others_begun >= own.exchange) {
    return std::nullopt;  // one of them is on its way to the other
  }
  return describe({.rank = rank_, .operation = own.operation},
                  {.rank = other->rank, .operation = other->operation}, among(group, world_size_));
}

}  // namespace accelerate::comm
