#include "comm/rendezvous/rendezvous.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <string_view>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "base/inquiry_keys.h"
#include "comm/rendezvous/loopback_listener.h"
#include "comm/rendezvous/tcp_probe.h"

namespace accelerate::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

std::string endpoint(const RankEnvironment& ranks) {
  return ranks.master_address + ":" + std::to_string(ranks.master_port);
}

// One limit for all steps of a meeting.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds timeout)
      : timeout_(timeout), end_(std::chrono::steady_clock::now() + timeout) {}

  std::chrono::milliseconds timeout() const { return timeout_; }
  std::chrono::steady_clock::time_point end() const { return end_; }
  // What is left of it; never nothing, which would mean "no limit" to libtorch.
  std::chrono::milliseconds left() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end_ - std::chrono::steady_clock::now());
    return std::max(left, std::chrono::milliseconds(1));
  }
  // "within 30 s"
  std::string text() const {
    return "within " +
           std::to_string(std::chrono::duration_cast<std::chrono::seconds>(timeout_).count()) +
           " s";
  }

 private:
  std::chrono::milliseconds timeout_;
  std::chrono::steady_clock::time_point end_;
};

// libtorch would ask for the name again and again and warn each time.
void require_known_host(const RankEnvironment& ranks, const Deadline& deadline) {
  const std::string what = "the machine of rank 0, " + ranks.master_address + ", is not known here";
  const std::string reason =
      wait_until_known(ranks.master_address, deadline.end(), [&](const std::string& so_far) {
        log(LogLevel::kWarning, what + " (" + so_far + "): waiting for its name");
      });
  if (reason.empty()) return;
  throw CommError({.what = what + ": " + reason,
                   .where = "rendezvous (MASTER_ADDR)",
                   .hint = "set MASTER_ADDR to an address of it that all ranks can reach"});
}

StorePtr connect_store(const RankEnvironment& ranks, bool host, const Deadline& deadline) {
  if (!host && !wait_until_listening(ranks.master_address, ranks.master_port, deadline.end())) {
    throw CommError({.what = "no answer from rank 0 at " + endpoint(ranks) + " " + deadline.text(),
                     .where = "rendezvous (MASTER_ADDR, MASTER_PORT)",
                     .hint = "check that rank 0 runs and that its machine can be reached"});
  }
  c10d::TCPStoreOptions options;
  options.port = ranks.master_port;
  options.isServer = host;
  if (host) {  // libtorch owns it then
    UniqueFd listener = bind_loopback(ranks.master_address, ranks.master_port);
    if (listener) options.masterListenFd = listener.release();
  }
  options.numWorkers = ranks.world_size;
  options.waitWorkers = false;
  options.timeout = deadline.left();
  try {
    StorePtr store = c10::make_intrusive<c10d::TCPStore>(ranks.master_address, options);
    store->setTimeout(deadline.timeout());  // for the questions after the meeting
    return store;
  } catch (const std::exception& error) {
    const bool busy =
        host && std::string_view(error.what()).find("EADDRINUSE") != std::string_view::npos;
    throw CommError({.what = host ? std::string("rank 0 cannot listen at ") + endpoint(ranks)
                                  : "no answer from rank 0 at " + endpoint(ranks),
                     .where = "rendezvous (MASTER_ADDR, MASTER_PORT): " + std::string(error.what()),
                     .hint = busy ? "another program has the port: choose another MASTER_PORT"
                             : host
                                 ? "MASTER_ADDR must be an address of the machine of rank 0"
                                 : "check that rank 0 runs and that its machine can be reached"});
  }
}

// What tells the ranks of one attempt of one job from all others.
std::string describe_job(const RankEnvironment& ranks) {
  return std::to_string(ranks.world_size) + " ranks" +
         (ranks.job.empty() ? "" : " of job " + ranks.job);
}

// Under this key the rank 0 that hosts a store says for whom.
constexpr const char* kHostKey = "accelerate/host";

// A worker that is late, or of an earlier attempt, must neither join a group nor wait for it.
void require_own_host(c10d::Store& store, const RankEnvironment& ranks, const Deadline& deadline) {
  std::string host;
  try {
    store.wait({kHostKey}, deadline.left());
    const std::vector<uint8_t> bytes = store.get(kHostKey);
    host.assign(bytes.begin(), bytes.end());
  } catch (const std::exception&) {  // NOLINT: not hosted by this library; the meeting will tell
    return;
  }
  if (host == describe_job(ranks)) return;
  throw CommError({.what = "rank 0 did not join: the process that listens at " + endpoint(ranks) +
                           " is for " + host + ", this rank is one of " + describe_job(ranks),
                   .where = "rendezvous (MASTER_ADDR, MASTER_PORT)",
                   .hint = "start all ranks with the same WORLD_SIZE, from one launcher; a worker "
                           "of an earlier attempt must end"});
}

// The store of this process for `ranks`: the first call connects (and hosts, on rank 0), later
// ones get the same. State of the whole process: rank 0 listens once.
StorePtr process_store(const RankEnvironment& ranks, const Deadline& deadline) {
  static std::mutex mutex;
  static auto& stores = *new std::map<std::string, StorePtr>();  // outlives all static objects
  const std::lock_guard lock(mutex);
  StorePtr& store = stores[endpoint(ranks)];
  if (!store) {
    const bool host = ranks.rank == 0 && !ranks.store_is_hosted;
    require_known_host(ranks, deadline);
    StorePtr opened = connect_store(ranks, host, deadline);
    if (host) {
      opened->set(kHostKey, describe_job(ranks));
    } else if (!ranks.store_is_hosted) {
      require_own_host(*opened, ranks, deadline);
    }
    store = std::move(opened);
  }
  return store;
}

// Keys of one attempt of one job: a hosted store outlives restarts of the workers, and two jobs may
// have been given one address.
std::string job_prefix(const RankEnvironment& ranks) {
  return inquiry::job_prefix(ranks.world_size, ranks.job);
}

[[noreturn]] void throw_lost(const std::exception& cause) {
  throw CommError({.what = "rank 0 was lost while the ranks were meeting",
                   .where = std::string("rendezvous: ") + cause.what(),
                   .hint = "look at the output of rank 0"});
}

std::string presence_key(int rank) { return "present/" + std::to_string(rank); }

std::vector<int> missing_ranks(c10d::Store& store, int world_size) {
  std::vector<int> missing;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!store.check({presence_key(rank)})) missing.push_back(rank);
  }
  return missing;
}

void wait_for_all(c10d::Store& store, int world_size, const Deadline& deadline) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size; ++rank) keys.push_back(presence_key(rank));
  try {
    store.wait(keys, deadline.left());
    return;
  } catch (const std::exception&) {  // NOLINT: the timeout, or a lost store, which is asked next
  }
  std::vector<int> missing;
  try {
    missing = missing_ranks(store, world_size);
  } catch (const std::exception& error) {
    throw_lost(error);
  }
  if (missing.empty()) return;  // the last one came just now
  throw CommError({.what = list_ranks(missing) + " did not join " + deadline.text() + " (" +
                           std::to_string(world_size - missing.size()) + " of " +
                           std::to_string(world_size) + " are here)",
                   .where = "rendezvous",
                   .hint = "check that all ranks were started, with the same WORLD_SIZE"});
}

// Counts this group among those of its rank, says that this rank is here and returns the prefix of
// the group's keys.
std::string enter(c10d::Store& base, const RankEnvironment& ranks) {
  const std::string prefix = job_prefix(ranks);
  try {
    if (ranks.rank == 0) {
      base.set(inquiry::kJobKey, std::to_string(ranks.world_size) + " " + ranks.job);
    }
    const int64_t index = base.add(prefix + inquiry::groups_key(ranks.rank), 1);
    std::string group = prefix + inquiry::group_key(index);
    base.set(group + "/" + presence_key(ranks.rank), std::string("1"));
    return group;
  } catch (const std::exception& error) {
    throw_lost(error);
  }
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

Meeting meet(const RankEnvironment& ranks, std::chrono::milliseconds timeout) {
  const Deadline deadline(timeout);
  const StorePtr base = process_store(ranks, deadline);
  const std::string group = enter(*base, ranks);
  Meeting meeting;
  meeting.store = c10::make_intrusive<c10d::PrefixStore>(group, base);
  wait_for_all(*meeting.store, ranks.world_size, deadline);
  meeting.second_connection =
      c10::make_intrusive<c10d::PrefixStore>(group, connect_store(ranks, false, deadline));
  return meeting;
}

}  // namespace accelerate::comm
