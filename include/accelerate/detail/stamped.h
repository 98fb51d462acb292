// Errors that say on which rank they were thrown. Internal: users do not call it.
#pragma once

#include <utility>

#include "accelerate/errors.h"

namespace accelerate::detail {

// Runs `call` and stamps the errors of this library that pass through with the rank that `ranks`
// has: a Communicator, a ProcessState, anything with rank() and world_size().
template <class Ranks, class Call>
decltype(auto) stamped(const Ranks& ranks, Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (Error& error) {
    error.set_rank(ranks.rank(), ranks.world_size());
    throw;
  }
}

// Throws UsageError with that rank.
template <class Ranks>
[[noreturn]] void throw_usage_error(const Ranks& ranks, ErrorInfo info) {
  UsageError error(std::move(info));
  error.set_rank(ranks.rank(), ranks.world_size());
  throw error;
}

}  // namespace accelerate::detail
