#include "checkpoint/state_agreement.h"

#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"

namespace accelerate::checkpoint {
namespace {

constexpr char kCheckpoint = 'C';
constexpr char kUsage = 'U';
constexpr char kEnd = '\0';

std::string bytes_of(char kind, const ErrorInfo& info) {
  return kind + info.what + kEnd + info.where + kEnd + info.hint;
}

ErrorInfo info_of(const Error& error) {
  return {.what = error.message(), .where = error.where(), .hint = error.hint()};
}

}  // namespace

std::exception_ptr caught(const std::function<void()>& action) {
  try {
    action();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

std::string error_bytes(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const CommError&) {
    throw;  // there is nobody to tell
  } catch (const UsageError& known) {
    return bytes_of(kUsage, info_of(known));
  } catch (const Error& known) {
    return bytes_of(kCheckpoint, info_of(known));
  } catch (const std::exception& other) {
    return bytes_of(kCheckpoint, {.what = other.what()});
  } catch (...) {
    return bytes_of(kCheckpoint, {.what = "an exception that is no std::exception"});
  }
}

void throw_error_of(const std::string& bytes, int rank, int world_size) {
  const size_t place = bytes.find(kEnd);
  const size_t hint = bytes.find(kEnd, place + 1);
  ErrorInfo info{.what = bytes.substr(1, place - 1),
                 .where = bytes.substr(place + 1, hint - place - 1),
                 .hint = bytes.substr(hint + 1)};
  if (bytes[0] == kUsage) {
    UsageError error(std::move(info));
    error.set_rank(rank, world_size);
    throw error;
  }
  CheckpointError error(std::move(info));
  error.set_rank(rank, world_size);
  throw error;
}

void agree(Communicator& ranks, const std::exception_ptr& own) {
  const std::vector<std::string> all = ranks.all_gather_bytes(error_bytes(own));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    if (static_cast<int>(rank) == ranks.rank()) std::rethrow_exception(own);
    throw_error_of(all[rank], static_cast<int>(rank), ranks.world_size());
  }
}

}  // namespace accelerate::checkpoint
