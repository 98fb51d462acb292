// Errors that say on which rank they were thrown. Internal: users do not call it.
#pragma once

#include <utility>

#include "accelerate/errors.h"

namespace accelerate::detail {

// Stamps `error` with the rank that `ranks` has: a ProcessState, anything with rank() and
// world_size(), or a Communicator, whose rank in the job counts.
template <class Ranks>
void stamp(Error& error, const Ranks& ranks) {
  if constexpr (requires { ranks.global_rank(); }) {
    error.set_rank(ranks.global_rank(), ranks.global_size());
  } else {
    error.set_rank(ranks.rank(), ranks.world_size());
  }
}

// Runs `call` and stamps the errors of this library that pass through.
template <class Ranks, class Call>
decltype(auto) stamped(const Ranks& ranks, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (Error& error) {
    stamp(error, ranks);
    throw;
  }
}

// Throws UsageError with that rank.
template <class Ranks>
[[noreturn]] void throw_usage_error(const Ranks& ranks, ErrorInfo info) {
  UsageError error(std::move(info));
  stamp(error, ranks);
  throw error;
}

}  // namespace accelerate::detail
