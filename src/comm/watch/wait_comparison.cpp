#include "comm/watch/wait_comparison.h"

#include <algorithm>
#include <sstream>

#include "comm/watch/rank_record.h"

namespace accelerate::comm {

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
    const std::string key = "wait/" + (*group)->name + '/' + std::to_string(wait.exchange);
    under_way.insert(key);
    if (compared_.contains(key)) continue;
    if (auto difference = compare(**group, wait, key)) return difference;
  }
  compared_ = std::move(under_way);
  std::erase_if(left_, [&](const std::string& key) {
    if (compared_.contains(key)) return false;
    store_.remove(key);  // it has ended, so nobody is in another operation
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
  if (first == own) left_.insert(key);
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

}  // namespace accelerate::comm
