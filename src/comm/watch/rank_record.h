// What a rank says of all its groups when another one looks for the cause of a failure.
#pragma once

#include <string>

#include "comm/watch/collective_log.h"
#include "comm/watch/group_list.h"

namespace accelerate::comm {

// A line for each group.
std::string record_of_groups(const GroupList& groups);

// What such a text says of the group called `name`.
CollectiveRecord record_in(const std::string& record, const std::string& name);

}  // namespace accelerate::comm
