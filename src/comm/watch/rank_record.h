// What a rank says of all its groups when another one looks for the cause of a failure.
#pragma once

#include <string>

#include "comm/watch/diagnosis.h"
#include "comm/watch/group_list.h"

namespace accelerate::comm {

// " among ranks 0 and 2"; nothing for a group of all `world_size` ranks.
std::string among(const GroupEntry& group, int world_size);

// A line for each group.
std::string record_of_groups(const GroupList& groups, int world_size);

// What such a text says when it is asked about the group called `name`.
RankRecord record_in(const std::string& record, const std::string& name);

}  // namespace accelerate::comm
