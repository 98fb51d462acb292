#include "comm/agreement.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>
#include <utility>

#include "accelerate/detail/stamped.h"
#include "accelerate/process_control.h"
#include "comm/rendezvous/rendezvous.h"

namespace accelerate::comm {
namespace {

// How a message begins; one that is empty is an empty result.
constexpr char kResult = '+';
constexpr char kFailure = '!';

RankFailure failure_from(ErrorKind kind, const Error& error) {
  return {.kind = kind,
          .info = {.what = error.message(), .where = error.where(), .hint = error.hint()}};
}

RankFailure foreign_failure(std::string text) { return {.info = {.what = std::move(text)}}; }

template <class E>
[[noreturn]] void throw_on(int rank, int world_size, ErrorInfo info) {
  E error(std::move(info));
  error.set_rank(rank, world_size);
  throw error;
}

bool is_failure(const std::string& message) {
  return !message.empty() && message.front() == kFailure;
}

RankOutcome attempt_with(Communicator& ranks, const std::function<std::string()>& make,
                         const TogetherOptions& options) {
  if (!options.without_timeout) return attempt(make);
  RankOutcome own;
  without_timeout(ranks, [&] { own = attempt(make); });
  return own;
}

}  // namespace

RankFailure failure_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& known) {
    return failure_from(ErrorKind::kUsage, known);
  } catch (const ConfigError& known) {
    return failure_from(ErrorKind::kConfig, known);
  } catch (const DataError& known) {
    return failure_from(ErrorKind::kData, known);
  } catch (const CheckpointError& known) {
    return failure_from(ErrorKind::kCheckpoint, known);
  } catch (const CommError& known) {
    return failure_from(ErrorKind::kComm, known);
  } catch (const Error& known) {
    return failure_from(ErrorKind::kForeign, known);
  } catch (const c10::Error& of_torch) {
    return foreign_failure(of_torch.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return foreign_failure("out of memory");
  } catch (const std::exception& other) {
    return foreign_failure(other.what());
  } catch (...) {
    return foreign_failure("an exception that is not a std::exception");
  }
}

std::string text_of(const std::exception_ptr& error) {
  const ErrorInfo info = failure_of(error).info;
  return info.where.empty() ? info.what : info.what + " (" + info.where + ")";
}

std::string encode(const RankFailure& failure) {
  const ErrorInfo& info = failure.info;
  return static_cast<char>(failure.kind) + to_fields({info.what, info.where, info.hint});
}

RankFailure decode_failure(const std::string& bytes, int rank) {
  std::vector<std::string> fields = from_fields(bytes.substr(1));
  fields.resize(3);
  return {.kind = static_cast<ErrorKind>(bytes.front()),
          .info = {.what = fields[0], .where = fields[1], .hint = fields[2]},
          .rank = rank,
          .ranks = {rank}};
}

void throw_as_it_was(const Communicator& ranks, const RankFailure& failure) {
  const int size = ranks.global_size();
  switch (failure.kind) {
    case ErrorKind::kUsage:
      throw_on<UsageError>(failure.rank, size, failure.info);
    case ErrorKind::kConfig:
      throw_on<ConfigError>(failure.rank, size, failure.info);
    case ErrorKind::kData:
      throw_on<DataError>(failure.rank, size, failure.info);
    case ErrorKind::kCheckpoint:
      throw_on<CheckpointError>(failure.rank, size, failure.info);
    case ErrorKind::kComm:
    case ErrorKind::kForeign:
      break;
  }
  throw_on<CommError>(failure.rank, size, failure.info);
}

std::function<void(const Communicator&, const RankFailure&)> told_at(std::string where) {
  return [where = std::move(where)](const Communicator& ranks, const RankFailure& failure) {
    const bool everywhere = static_cast<int>(failure.ranks.size()) == ranks.world_size();
    detail::throw_usage_error(
        ranks,
        {.what = (everywhere ? "" : "on " + list_ranks(failure.ranks) + ": ") + failure.info.what,
         .where = where,
         .hint = failure.info.hint});
  };
}

RankOutcome attempt(const std::function<std::string()>& make) {
  RankOutcome own;
  try {
    const std::string result = make();
    if (!result.empty()) own.message = kResult + result;
  } catch (...) {
    own.error = std::current_exception();
    own.message = kFailure + encode(failure_of(own.error));
  }
  return own;
}

std::string result_in(const std::string& message) {
  return message.empty() ? message : message.substr(1);
}

void require_no_failure(Communicator& ranks, const std::vector<std::string>& messages,
                        const RankOutcome& own, const TogetherOptions& options) {
  RankFailure first;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    if (!is_failure(messages[rank])) continue;
    RankFailure failure = decode_failure(messages[rank].substr(1), ranks.global_ranks()[rank]);
    if (first.ranks.empty()) {
      first = std::move(failure);
    } else if (failure.info.what == first.info.what) {
      first.ranks.push_back(failure.rank);
    }
  }
  if (first.ranks.empty()) return;
  if (options.take_back) {
    options.take_back();
    ranks.barrier();
  }
  if (options.keep_own && own.error) std::rethrow_exception(own.error);
  if (options.retell) options.retell(ranks, first);
  throw_as_it_was(ranks, first);
}

std::vector<std::string> gather_together(Communicator& ranks,
                                         const std::function<std::string()>& make,
                                         const TogetherOptions& options) {
  const RankOutcome own = attempt_with(ranks, make, options);
  std::vector<std::string> all = ranks.all_gather_bytes(own.message);
  require_no_failure(ranks, all, own, options);
  for (std::string& message : all) message = result_in(message);
  return all;
}

void together(Communicator& ranks, const std::function<void()>& work,
              const TogetherOptions& options) {
  (void)gather_together(
      ranks,
      [&] {
        work();
        return std::string();
      },
      options);
}

std::string broadcast_together(Communicator& ranks, int root,
                               const std::function<std::string()>& make,
                               const TogetherOptions& options) {
  const bool makes = ranks.rank() == root;
  const RankOutcome own = attempt_with(
      ranks, [&] { return makes ? make() : std::string(); }, options);
  // Only that of the root counts, under its number.
  std::vector<std::string> all(static_cast<size_t>(ranks.world_size()));
  std::string& message = all[static_cast<size_t>(root)];
  message = ranks.broadcast_bytes(own.message, root);
  require_no_failure(ranks, all, own, options);
  return result_in(message);
}

std::string RankDifference::text(const std::string& between) const {
  const auto of_rank = [&](int number, const std::string& said) {
    return "rank " + std::to_string(number) + ' ' + between + ' ' + said;
  };
  return of_rank(first_rank, first) + ", " + of_rank(rank, other);
}

void require_same(Communicator& ranks, const std::string& own,
                  const std::function<ErrorInfo(const RankDifference& difference)>& describe) {
  if (ranks.world_size() == 1) return;
  const std::vector<std::string> all = ranks.all_gather_bytes(own);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    detail::throw_usage_error(ranks, describe({.first_rank = ranks.global_ranks()[0],
                                               .rank = ranks.global_ranks()[rank],
                                               .first = all[0],
                                               .other = all[rank]}));
  }
}

void require_same(Communicator& ranks, const std::vector<Fact>& own, const std::string& where) {
  std::vector<std::string> values;
  values.reserve(own.size());
  for (const Fact& fact : own) values.push_back(fact.value);
  require_same(ranks, to_fields(values), [&](const RankDifference& difference) {
    const std::vector<std::string> wanted = from_fields(difference.first);
    const std::vector<std::string> given = from_fields(difference.other);
    size_t fact = 0;
    while (fact + 1 < own.size() && given[fact] == wanted[fact]) ++fact;
    return ErrorInfo{.what = "ranks differ: " + own[fact].name + " is " + wanted[fact] +
                             " on rank " + std::to_string(difference.first_rank) + " and " +
                             given[fact] + " on rank " + std::to_string(difference.rank),
                     .where = where,
                     .hint = "call it on all ranks with the same options and objects"};
  });
}

std::string to_fields(const std::vector<std::string>& texts) {
  std::string fields;
  for (const std::string& text : texts) fields += std::to_string(text.size()) + ':' + text;
  return fields;
}

std::vector<std::string> from_fields(const std::string& fields) {
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < fields.size();) {
    const size_t colon = fields.find(':', begin);
    if (colon == std::string::npos) break;  // bytes that an exchange has filled up with
    const size_t size = std::stoul(fields.substr(begin, colon - begin));
    texts.push_back(fields.substr(colon + 1, size));
    begin = colon + 1 + size;
  }
  return texts;
}

}  // namespace accelerate::comm
