#include "strategy/ddp/replica_bits.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "comm/groups/activity.h"

namespace accelerate {
namespace {

// Ranks with the same bits, in the order of their first ones.
std::vector<std::vector<int>> equal_ranks(const std::vector<ReplicaDigest>& digests) {
  std::vector<std::vector<int>> groups;
  for (size_t rank = 0; rank < digests.size(); ++rank) {
    const auto group = std::ranges::find_if(groups, [&](const std::vector<int>& each) {
      return !digests[static_cast<size_t>(each[0])].compare(digests[rank]);
    });
    if (group != groups.end()) {
      group->push_back(static_cast<int>(rank));
    } else {
      groups.push_back({static_cast<int>(rank)});
    }
  }
  return groups;
}

// What differs, and on which of the groups, of which there are several.
std::string odd_one_out(const std::vector<ReplicaDigest>& digests,
                        const std::vector<std::vector<int>>& groups) {
  const auto largest = std::ranges::max_element(
      groups, {}, [](const std::vector<int>& group) { return group.size(); });
  const bool is_majority = 2 * largest->size() > digests.size();
  const auto odd = largest == groups.begin() ? groups.begin() + 1 : groups.begin();
  const int right = is_majority ? (*largest)[0] : groups[0][0];
  const int wrong = is_majority ? (*odd)[0] : groups[1][0];
  const auto difference =
      digests[static_cast<size_t>(right)].compare(digests[static_cast<size_t>(wrong)]);
  const std::string what = difference ? difference->parameter : "the state";
  if (!is_majority) return difference_text(what, right, wrong);
  return what + " on rank " + std::to_string(wrong) + " differs from that of " +
         std::to_string(largest->size()) + " other ranks";
}

}  // namespace

void require_equal_bits(Communicator& ranks, const NamedValues& values, int64_t updates,
                        const char* where) {
  const comm::Activity activity(ranks, "comparison of replicas");
  const ReplicaDigest own = ReplicaDigest::of(values);
  std::vector<ReplicaDigest> digests;
  for (const std::string& bytes : ranks.all_gather_bytes(own.encode())) {
    digests.push_back(ReplicaDigest::decode(bytes));
    digests.back().take_names(own);
  }
  const auto groups = equal_ranks(digests);
  if (groups.size() < 2) return;
  throw UsageError(
      {.what = "the replicas differ after " + std::to_string(updates) +
               " updates: " + odd_one_out(digests, groups),
       .where = where,
       .hint = "go on from the last checkpoint on all ranks; if the program changes nothing on one "
               "rank alone, suspect the memory or the device of the rank that differs"});
}

}  // namespace accelerate
