#include "comm/watch/rank_record.h"

#include <sstream>

namespace accelerate::comm {

std::string record_of_groups(const GroupList& groups) {
  std::string text;
  for (const auto& group : groups.all()) {
    text += group->name + ' ' + group->log->latest().encode() + '\n';
  }
  return text;
}

CollectiveRecord record_in(const std::string& record, const std::string& name) {
  std::istringstream lines(record);
  for (std::string line; std::getline(lines, line);) {
    const size_t blank = line.find(' ');
    if (line.substr(0, blank) == name) return CollectiveRecord::decode(line.substr(blank + 1));
  }
  return {};  // it has not come to open it
}

}  // namespace accelerate::comm
