#include "checkpoint/state/state_agreement.h"

#include <c10/util/Exception.h>

#include <new>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/process_control.h"

namespace accelerate::checkpoint {
namespace {

constexpr char kCheckpoint = 'C';
constexpr char kUsage = 'U';
constexpr char kEnd = '\0';

std::string bytes_of(char kind, const ErrorInfo& info) {
  return kind + info.what + kEnd + info.where + kEnd + info.hint;
}

ErrorInfo error_info(const Error& error) {
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

std::exception_ptr caught_on_all(Communicator& ranks, const std::function<void()>& action) {
  std::exception_ptr own;
  without_timeout(ranks, [&] { own = caught(action); });
  return own;
}

std::string cause_text(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.message() + (known.where().empty() ? "" : " (" + known.where() + ")");
  } catch (const c10::Error& of_torch) {
    return of_torch.what_without_backtrace();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  } catch (const std::exception& other) {
    return other.what();
  } catch (...) {
    return "an exception that is not a std::exception";
  }
}

std::string error_bytes(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& known) {
    return bytes_of(kUsage, error_info(known));
  } catch (const Error& known) {
    return bytes_of(kCheckpoint, error_info(known));
  } catch (...) {
    return bytes_of(kCheckpoint, {.what = cause_text(error)});
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

void agree(Communicator& ranks, const std::exception_ptr& own) { agree(ranks, own, nullptr); }

void agree(Communicator& ranks, const std::exception_ptr& own,
           const std::function<void()>& take_back) {
  const std::vector<std::string> all = ranks.all_gather_bytes(error_bytes(own));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    if (take_back) {
      take_back();
      ranks.barrier();
    }
    throw_error_of(all[rank], static_cast<int>(rank), ranks.world_size());
  }
}

std::string to_fields(const std::vector<std::string>& texts) {
  std::string fields;
  for (const std::string& text : texts) fields += text + kEnd;
  return fields;
}

std::vector<std::string> from_fields(const std::string& fields) {
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < fields.size();) {
    const size_t end = fields.find(kEnd, begin);
    texts.push_back(fields.substr(begin, end - begin));
    begin = end + 1;
  }
  return texts;
}

void require_same_facts(Communicator& ranks, const std::vector<Fact>& own,
                        const std::string& where) {
  if (ranks.world_size() == 1) return;
  std::vector<std::string> values;
  for (const Fact& fact : own) values.push_back(fact.value);
  const std::vector<std::string> all = ranks.all_gather_bytes(to_fields(values));
  const std::vector<std::string> wanted = from_fields(all[0]);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const std::vector<std::string> given = from_fields(all[rank]);
    for (size_t i = 0; i < own.size(); ++i) {
      if (given[i] == wanted[i]) continue;
      throw UsageError({.what = "ranks differ: " + own[i].name + " is " + wanted[i] +
                                " on rank 0 and " + given[i] + " on rank " + std::to_string(rank),
                        .where = where,
                        .hint = "call it on all ranks with the same options and objects"});
    }
  }
}

}  // namespace accelerate::checkpoint
