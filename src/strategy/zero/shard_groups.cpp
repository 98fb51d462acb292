#include "strategy/zero/shard_groups.h"

#include <string>

#include "accelerate/errors.h"
#include "accelerate/mesh.h"
#include "comm/agreement.h"
#include "comm/groups/communicator_impl.h"
#include "strategy/zero/zero_options.h"

namespace accelerate {
namespace {

constexpr const char* kReplicateAxis = "dp_replicate";
constexpr const char* kShardAxis = "dp_shard";

struct MeshOfRanks {
  std::shared_ptr<Communicator> ranks;
  Mesh mesh;
};

std::string size_text(const char* name, const std::optional<int>& size) {
  return std::string(name) + (size ? " = " + std::to_string(*size) : " unset");
}

}  // namespace

ShardSizes shard_sizes_of(const ZeroOptions& options, int world_size) {
  const auto& shard = options.dp_shard_size;
  const auto& replicate = options.dp_replicate_size;
  const bool is_positive = shard.value_or(1) > 0 && replicate.value_or(1) > 0;
  if (is_positive) {
    const int own = shard.value_or(world_size / replicate.value_or(1));
    const int copies = replicate.value_or(own > 0 ? world_size / own : 0);
    if (int64_t{own} * copies == world_size) return {.shard = own, .replicate = copies};
  }
  throw UsageError({.what = size_text("dp_shard_size", shard) + " and " +
                            size_text("dp_replicate_size", replicate) + " do not fit " +
                            std::to_string(world_size) +
                            (world_size == 1 ? " process" : " processes"),
                    .where = "ZeroOptions::dp_shard_size",
                    .hint = "the two multiply to the number of processes: set one of them to a "
                            "divisor of it, and leave the other out"});
}

ShardGroups open_shard_groups(const std::shared_ptr<Communicator>& ranks,
                              const ZeroOptions& options) {
  comm::require_same(*ranks, facts_of(options), "prepare");
  const ShardSizes sizes = shard_sizes_of(options, ranks->world_size());
  if (sizes.replicate == 1) return {.all = ranks, .shards = ranks, .replicas = nullptr};
  std::shared_ptr<MeshOfRanks> opened(
      new MeshOfRanks{ranks, Mesh(*ranks, {{.name = kReplicateAxis, .size = sizes.replicate},
                                           {.name = kShardAxis, .size = sizes.shard}})});
  const auto group = [&](const char* axis) {
    return std::shared_ptr<Communicator>(opened, &opened->mesh.axis(axis));
  };
  return {.all = ranks, .shards = group(kShardAxis), .replicas = group(kReplicateAxis)};
}

int local_ranks_of(Communicator& ranks) {
  return comm::impl_of(ranks).job().state.local_world_size();
}

}  // namespace accelerate
