#include "comm/watch/diagnosis.h"

#include <vector>

#include "comm/rendezvous/rendezvous.h"

namespace accelerate::comm {
namespace {

constexpr const char* kDecideTogether =
    "a rank that leaves its loop leaves the others waiting: decide together when to stop (reduce() "
    "the criterion, or set_trigger() and check_trigger()); for ranks with fewer batches there is "
    "join_uneven_inputs()";
constexpr const char* kSeeItsMessage =
    "the rank that ended first said why: look for its message above, or in the launcher's "
    "report";
constexpr const char* kSlowOrElsewhere =
    "all ranks must make the same calls in the same order; if they do and one is only slow, raise "
    ".process_group = {.timeout = ...}";
constexpr const char* kSameCalls =
    "all ranks must make the same calls in the same order; ACCELERATE_DEBUG_MODE=true finds the "
    "first that differs";
constexpr const char* kNetwork = "see whether the network between the machines was interrupted";

// Where all ranks have arrived: what each of them does, if that is not the same.
Diagnosis describe_difference(const Records& records, int64_t sequence,
                              const std::vector<int>& members) {
  struct Same {
    std::string operation{};
    std::vector<int> ranks{};
  };
  std::map<uint32_t, Same> same;  // by kind: a text says what the user called, which may differ
  for (const int rank : members) {
    const CollectiveRecord& record = records.at(rank).here;
    if (record.sequence != sequence) continue;
    Same& those = same[record.kind];
    if (those.ranks.empty()) those.operation = record.operation;
    those.ranks.push_back(rank);
  }
  if (same.size() < 2) {
    return {.what = "all ranks arrived, the connection between them broke", .hint = kNetwork};
  }
  std::string text;
  for (const auto& [kind, those] : same) {
    text += (text.empty() ? "the ranks are in different collectives: " : "; ") +
            list_ranks(those.ranks) + " in " + those.operation;
  }
  return {.what = text, .hint = kSameCalls};
}

std::string did_not_arrive(const std::vector<int>& ranks, RankEnd end) {
  const bool one = ranks.size() == 1;
  const std::string text = list_ranks(ranks) + " did not arrive";
  switch (end) {
    case RankEnd::kNormal:
      return text + (one ? ": it has left its loop and ended normally"
                         : ": they have left their loops and ended normally");
    case RankEnd::kError:
      return text + (one ? ": it ended with an error" : ": they ended with an error");
    case RankEnd::kGone:
      return text + (one ? ": its process has ended" : ": their processes have ended");
    case RankEnd::kUnknown:
      break;
  }
  return text + (one ? " and does not answer (stopped or unreachable)"
                     : " and do not answer (stopped or unreachable)");
}

// What to do about ranks that ended, or did not; the first cause counts.
const char* hint_for_silent(const std::map<RankEnd, std::vector<int>>& silent) {
  if (silent.count(RankEnd::kError) != 0 || silent.count(RankEnd::kGone) != 0) {
    return kSeeItsMessage;
  }
  return silent.count(RankEnd::kNormal) != 0 ? kDecideTogether : kSlowOrElsewhere;
}

}  // namespace

Diagnosis describe(const Records& records, const RankEnds& ends, int64_t sequence,
                   const std::vector<int>& members) {
  std::map<RankEnd, std::vector<int>> silent;
  std::string late;
  for (const int rank : members) {
    const auto found = records.find(rank);
    if (found == records.end()) {
      const auto end = ends.find(rank);
      silent[end == ends.end() ? RankEnd::kUnknown : end->second].push_back(rank);
      continue;
    }
    const auto& [record, elsewhere] = found->second;
    if (record.sequence >= sequence) continue;
    if (!late.empty()) late += "; ";
    late += "rank " + std::to_string(rank) + " did not arrive, its last was #" +
            std::to_string(record.sequence) + " " + record.operation +
            (record.finished ? " (finished)" : " (not finished)");
    if (!elsewhere.empty()) late += ", and it is in " + elsewhere;
  }
  std::string text;
  for (const auto& [end, ranks] : silent) {
    text += (text.empty() ? "" : "; ") + did_not_arrive(ranks, end);
  }
  if (!late.empty()) text += (text.empty() ? "" : "; ") + late;
  if (text.empty()) return describe_difference(records, sequence, members);
  return {.what = text, .hint = hint_for_silent(silent)};
}

Diagnosis describe(const WaitOfRank& one, const WaitOfRank& other, const std::string& among) {
  const WaitOfRank& first = one.rank < other.rank ? one : other;
  const WaitOfRank& second = one.rank < other.rank ? other : one;
  std::string what = "the ranks" + among + " wait for each other in different operations: rank " +
                     std::to_string(first.rank) + " in " + first.operation + ", rank " +
                     std::to_string(second.rank) + " in " + second.operation;
  if (first.operation == second.operation) what += ", with tensors of other sizes or another root";
  return {.what = what, .hint = kSameCalls, .misused = first.operation};
}

Diagnosis describe(StoreEnd end) {
  switch (end) {
    case StoreEnd::kLeft:
      return {.what = "rank 0 has left its loop: its accelerator ended while this rank went on",
              .hint = kDecideTogether};
    case StoreEnd::kError:
      return {.what = "rank 0 ended with an error", .hint = kSeeItsMessage};
    case StoreEnd::kLost:
      break;
  }
  return {.what = "rank 0, which hosts the store, is gone or does not answer",
          .hint = kSeeItsMessage};
}

Diagnosis describe_silent_failure() {
  return {.what = "another rank failed and ended before it could say why", .hint = kSeeItsMessage};
}

std::string Diagnosis::encode() const { return what + '\n' + hint + '\n' + misused; }

Diagnosis Diagnosis::decode(const std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return {.what = text, .hint = kSeeItsMessage};
  const size_t last = text.find('\n', end + 1);
  if (last == std::string::npos) {
    return {.what = text.substr(0, end), .hint = text.substr(end + 1)};
  }
  return {.what = text.substr(0, end),
          .hint = text.substr(end + 1, last - end - 1),
          .misused = text.substr(last + 1)};
}

}  // namespace accelerate::comm
