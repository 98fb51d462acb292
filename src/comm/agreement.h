// One outcome for all ranks: what fails on one of them is thrown on all, before they wait for each
// other.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/errors.h"
#include "accelerate/export.h"

namespace accelerate::comm {

// Of which kind an error is that travels to other ranks. kForeign: not one of this library.
enum class ErrorKind : char {
  kUsage = 'U',
  kConfig = 'G',
  kData = 'D',
  kCheckpoint = 'C',
  kComm = 'M',
  kForeign = 'F',
};

// What went wrong on a rank.
struct RankFailure {
  ErrorKind kind = ErrorKind::kForeign;
  // Of an exception that is not of this library its text, without the stack that libtorch appends.
  ErrorInfo info{};
  int rank = 0;              // of the job: the first that failed
  std::vector<int> ranks{};  // of the job: all that failed in the same words
};

struct TogetherOptions {
  // For work of unlike length, by accelerate::without_timeout(): it must not talk to other ranks.
  bool without_timeout = false;
  // A rank that failed throws its own exception as it is. False: all ranks throw that of the first.
  bool keep_own = false;
  // Run on all ranks before any of them throws: whoever sees the error sees nothing left of what
  // failed.
  std::function<void()> take_back{};
  // Throws what the ranks that did not fail say. Empty: throw_as_it_was().
  std::function<void(const Communicator&, const RankFailure&)> retell{};
};

// Runs `work` on every rank; if it throws on some, throws on all. Collective; one small exchange
// while nothing is wrong. Throws CommError at once if ranks are lost. The group goes on.
ACCELERATE_EXPORT void together(Communicator& ranks, const std::function<void()>& work,
                                const TogetherOptions& options = {});
// The same, and returns what `make` returned on all ranks, by rank.
std::vector<std::string> gather_together(Communicator& ranks,
                                         const std::function<std::string()>& make,
                                         const TogetherOptions& options = {});
// The same where `make` runs on `root` alone, and all get what it returned.
ACCELERATE_EXPORT std::string broadcast_together(Communicator& ranks, int root,
                                                 const std::function<std::string()>& make,
                                                 const TogetherOptions& options = {});

// The parts of it, for exchanges of another form: what a rank sends, also with zeros appended, and
// what all do with what they got.
struct RankOutcome {
  std::string message{};  // result_in() reads it; "" for an empty result
  std::exception_ptr error{};
};
RankOutcome attempt(const std::function<std::string()>& make);
void require_no_failure(Communicator& ranks, const std::vector<std::string>& messages,
                        const RankOutcome& own, const TogetherOptions& options);
std::string result_in(const std::string& message);

// Ways to retell. As the error was, stamped with the rank on which it happened; one that is not of
// this library as CommError.
[[noreturn]] ACCELERATE_EXPORT void throw_as_it_was(const Communicator& ranks,
                                                    const RankFailure& failure);
// As UsageError at `where`, with "on rank 1: " before what it says unless it is so on all ranks.
std::function<void(const Communicator&, const RankFailure&)> told_at(std::string where);

RankFailure failure_of(const std::exception_ptr& error);
// One sentence, with the place behind it in brackets where there is one.
std::string text_of(const std::exception_ptr& error);
std::string encode(const RankFailure& failure);
RankFailure decode_failure(const std::string& bytes, int rank);

// A rank whose text is not that of the first rank of its group. Ranks are those of the job.
struct RankDifference {
  int first_rank = 0;
  int rank = 0;
  std::string first{};  // of `first_rank`
  std::string other{};  // of `rank`

  // "rank 0 has 4 samples, rank 2 has 5 samples", where `between` is "has".
  std::string text(const std::string& between) const;
};
// Throws UsageError, the same on all ranks, with what `describe` makes of the first difference.
// Collective; one small exchange.
ACCELERATE_EXPORT void require_same(
    Communicator& ranks, const std::string& own,
    const std::function<ErrorInfo(const RankDifference& difference)>& describe);

struct Fact {
  std::string name;
  std::string value;
};
// The same for several facts: names the first in which a rank differs from rank 0. All ranks give
// the same names in the same order; values are any bytes.
void require_same(Communicator& ranks, const std::vector<Fact>& own, const std::string& where);

// Texts, of any bytes, as one text, and back.
std::string to_fields(const std::vector<std::string>& texts);
std::vector<std::string> from_fields(const std::string& fields);

}  // namespace accelerate::comm
