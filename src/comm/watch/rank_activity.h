// What this rank is doing, for somebody who is not one of the ranks.
#pragma once

#include <cstddef>

#include "base/rank_report.h"
#include "comm/watch/group_list.h"

namespace accelerate::comm {

// Of all groups of the job, with up to `most` entries of the log. `events` is the stream in which
// the logs of `groups` write. Any thread; waits for nothing.
RankReport report_of(const GroupList& groups, const EventStream& events, int world_size,
                     size_t most);

}  // namespace accelerate::comm
