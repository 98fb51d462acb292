// What the ranks of a group say about the end of a collective.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "comm/watch/collective_log.h"

namespace accelerate::comm {

// Why a collective failed.
struct Diagnosis {
  std::string what{};  // one sentence
  std::string hint{};  // what the user can do in this case
  // Not empty: what the user called when a rank found that the program is wrong. The collectives of
  // all ranks then end with this UsageError.
  std::string misused{};

  std::string encode() const;
  static Diagnosis decode(const std::string& text);
};

// How a rank that does not answer has ended, as far as is known.
enum class RankEnd { kUnknown, kGone, kNormal, kError };
using RankEnds = std::map<int, RankEnd>;

// What a rank says when it is asked about a group.
struct RankRecord {
  CollectiveRecord here{};  // what it did last in this group
  // What it is in at the moment in another one: "#3 barrier among ranks 1 and 2"; "" for nothing.
  std::string elsewhere{};
};
using Records = std::map<int, RankRecord>;

// How rank 0, which hosts the store, went: it left its loop, it ended with an error, it is lost.
enum class StoreEnd { kLeft, kError, kLost };

// Which of `members` did not arrive at collective `sequence`. `ends` are of those without a record.
Diagnosis describe(const Records& records, const RankEnds& ends, int64_t sequence,
                   const std::vector<int>& members);
Diagnosis describe(StoreEnd end);

// What a rank has waited for, for long.
struct WaitOfRank {
  int rank = 0;
  std::string operation{};
};
// Of two ranks that wait in the same exchange and mean different ones: no time will help, the
// program is wrong. `among` is " among ranks 0 and 2", or nothing for all.
Diagnosis describe(const WaitOfRank& one, const WaitOfRank& other, const std::string& among);
// Of a rank that raised the alarm and was not heard of again.
Diagnosis describe_silent_failure();

}  // namespace accelerate::comm
