#include "trace/clock_offsets.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/median.h"

namespace accelerate::trace {
namespace {

// Numbers of machines, by rank.
std::vector<size_t> machines_of(const std::vector<RankMeetings>& ranks) {
  std::vector<size_t> machines;
  std::map<std::string, size_t> known;
  size_t next = 0;
  for (const RankMeetings& rank : ranks) {
    if (rank.machine.empty()) {
      machines.push_back(next++);
      continue;
    }
    const auto [found, is_new] = known.try_emplace(rank.machine, next);
    if (is_new) ++next;
    machines.push_back(found->second);
  }
  return machines;
}

class ClockComparison {
 public:
  explicit ClockComparison(const std::vector<RankMeetings>& ranks)
      : ranks_(ranks), machines_(machines_of(ranks)) {
    if (!ranks.empty()) offsets_[machines_[0]] = ClockOffset{};
  }

  std::vector<ClockOffset> run() {
    while (place_next()) {
    }
    std::vector<ClockOffset> result;
    for (const size_t machine : machines_) result.push_back(offsets_[machine]);
    return result;
  }

 private:
  // Of the machines that have no offset yet, the one with the most exchanges with those that have.
  bool place_next() {
    std::map<size_t, std::vector<double>> differences;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (offsets_.contains(machines_[rank])) continue;
      add_differences(rank, differences[machines_[rank]]);
    }
    const auto most = std::max_element(
        differences.begin(), differences.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (most == differences.end() || most->second.empty()) return false;
    ClockOffset offset{.us = median_of(most->second),
                       .meetings = static_cast<int64_t>(most->second.size())};
    for (double& difference : most->second) difference = std::abs(difference - offset.us);
    offset.deviation_us = median_of(most->second);
    offsets_[most->first] = offset;
    return true;
  }

  // How much later than on ranks whose offset is known the exchanges of `rank` ended by its clock.
  void add_differences(size_t rank, std::vector<double>& differences) const {
    for (size_t other = 0; other < ranks_.size(); ++other) {
      const auto offset = offsets_.find(machines_[other]);
      if (offset == offsets_.end()) continue;
      for (const auto& [name, end_us] : ranks_[rank].ends) {
        const auto met = ranks_[other].ends.find(name);
        if (met == ranks_[other].ends.end()) continue;
        differences.push_back(end_us - (met->second - offset->second.us));
      }
    }
  }

  const std::vector<RankMeetings>& ranks_;
  const std::vector<size_t> machines_;
  std::map<size_t, ClockOffset> offsets_;
};

}  // namespace

std::vector<ClockOffset> clock_offsets(const std::vector<RankMeetings>& ranks) {
  return ClockComparison(ranks).run();
}

}  // namespace accelerate::trace
