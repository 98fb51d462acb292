#include "comm/watch/rank_record.h"

#include <sstream>

#include "comm/rendezvous/rendezvous.h"

namespace accelerate::comm {

std::string among(const GroupEntry& group, int world_size) {
  const bool is_all = group.ranks.size() == static_cast<size_t>(world_size);
  return is_all ? "" : " among " + list_ranks(group.ranks);
}

std::string record_of_groups(const GroupList& groups, int world_size) {
  std::string text;
  for (const auto& group : groups.all()) {
    text += group->name + '\t' + among(*group, world_size) + '\t' + group->log->latest().encode() +
            '\n';
  }
  return text;
}

RankRecord record_in(const std::string& record, const std::string& name) {
  RankRecord result;  // a rank that has not come to open the group has done nothing in it
  std::istringstream lines(record);
  for (std::string of_group; std::getline(lines, of_group, '\t');) {
    std::string ranks;
    std::string latest;
    std::getline(lines, ranks, '\t');
    std::getline(lines, latest);
    const CollectiveRecord read = CollectiveRecord::decode(latest);
    if (of_group == name) {
      result.here = read;
    } else if (!read.finished && result.elsewhere.empty()) {
      result.elsewhere = "#" + std::to_string(read.sequence) + " " + read.operation +
                         (ranks.empty() ? " of all ranks" : ranks);
    }
  }
  return result;
}

}  // namespace accelerate::comm
