// Ranks that keep the shards of one copy of the training state, and those that keep the same ones.
#pragma once

#include <memory>

#include "accelerate/communicator.h"
#include "accelerate/zero.h"

namespace accelerate {

// How many ranks share one copy, and how many copies there are. Ranks that follow each other share.
struct ShardSizes {
  int shard = 1;
  int replicate = 1;
};

// Throws UsageError for sizes that do not multiply to the number of ranks.
ShardSizes shard_sizes_of(const ZeroOptions& options, int world_size);

struct ShardGroups {
  std::shared_ptr<Communicator> all;
  std::shared_ptr<Communicator> shards;    // all ranks where there is one copy
  std::shared_ptr<Communicator> replicas;  // null where there is one copy
};

// Opens the groups of those of `ranks`. Throws UsageError on all ranks alike if their options
// differ. Collective.
ShardGroups open_shard_groups(const std::shared_ptr<Communicator>& ranks,
                              const ZeroOptions& options);

// How many ranks of the job are on the machine of this one.
int local_ranks_of(Communicator& ranks);

}  // namespace accelerate
