#include "checkpoint/state_agreement.h"

#include <ATen/ATen.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::checkpoint {
namespace {

constexpr char kCheckpoint = 'C';
constexpr char kUsage = 'U';
constexpr char kEnd = '\0';
constexpr std::chrono::milliseconds kBeat{500};

std::string bytes_of(char kind, const ErrorInfo& info) {
  return kind + info.what + kEnd + info.where + kEnd + info.hint;
}

ErrorInfo error_info(const Error& error) {
  return {.what = error.message(), .where = error.where(), .hint = error.hint()};
}

// Tells the other ranks every now and then that this one is still at work, until none is.
class Heartbeat {
 public:
  explicit Heartbeat(Communicator& ranks) : ranks_(ranks) {}

  void set_done() {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  void run() {
    while (!all_are_done(wait_for_beat())) continue;
  }

 private:
  // Whether this rank is done.
  bool wait_for_beat() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kBeat, [&] { return done_; });
  }

  bool all_are_done(bool own) {
    at::Tensor done = at::full({1}, own ? 1 : 0, at::kInt);
    ranks_.all_reduce(done, ReduceOp::kMin);
    return done.item<int>() == 1;
  }

  Communicator& ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

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
  if (ranks.world_size() == 1) return caught(action);
  Heartbeat heartbeat(ranks);
  std::exception_ptr lost;
  const auto beat = [&] { lost = caught([&] { heartbeat.run(); }); };
  std::optional<std::thread> thread;
  try {
    thread.emplace(beat);
  } catch (const std::system_error&) {
    thread.reset();  // no thread to be had: the others learn of this rank when it is done
  }
  const std::exception_ptr own = caught(action);
  heartbeat.set_done();
  if (thread) {
    thread->join();
  } else {
    beat();
  }
  if (lost) std::rethrow_exception(lost);
  return own;
}

std::string error_bytes(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& known) {
    return bytes_of(kUsage, error_info(known));
  } catch (const Error& known) {
    return bytes_of(kCheckpoint, error_info(known));
  } catch (const std::exception& other) {
    return bytes_of(kCheckpoint, {.what = other.what()});
  } catch (...) {
    return bytes_of(kCheckpoint, {.what = "an exception that is not a std::exception"});
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
