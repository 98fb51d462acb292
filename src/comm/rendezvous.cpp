#include "comm/rendezvous.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "accelerate/errors.h"
#include "comm/tcp_probe.h"

namespace accelerate::comm {
namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

std::string endpoint(const RankEnvironment& ranks) {
  return ranks.master_address + ":" + std::to_string(ranks.master_port);
}

int64_t seconds(std::chrono::milliseconds duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration).count();
}

StorePtr connect(const RankEnvironment& ranks, bool host, std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = ranks.master_port;
  options.isServer = host;
  options.numWorkers = ranks.world_size;
  options.waitWorkers = false;
  options.timeout = timeout;
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  if (!host && !wait_until_listening(ranks.master_address, ranks.master_port, deadline)) {
    throw CommError({.what = "no answer from rank 0 at " + endpoint(ranks) + " within " +
                             std::to_string(seconds(timeout)) + " s",
                     .where = "rendezvous (MASTER_ADDR, MASTER_PORT)",
                     .hint = "check that rank 0 runs and that its machine can be reached"});
  }
  try {
    return c10::make_intrusive<c10d::TCPStore>(ranks.master_address, options);
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

// The store of this process for `ranks`: the first call connects (and hosts, on rank 0), later
// ones get the same. The only state of the library that is shared by the whole process.
StorePtr process_store(const RankEnvironment& ranks, std::chrono::milliseconds timeout) {
  static std::mutex mutex;
  static auto& stores = *new std::map<std::string, StorePtr>();  // outlives all static objects
  const std::lock_guard lock(mutex);
  StorePtr& store = stores[endpoint(ranks)];
  if (!store) store = connect(ranks, ranks.rank == 0 && !ranks.store_is_hosted, timeout);
  return store;
}

// Keys of one attempt of one job: a hosted store outlives restarts of the workers.
std::string attempt_prefix() {
  std::string prefix = "accelerate";
  for (const char* name : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
    if (const char* value = std::getenv(name)) prefix += std::string("/") + value;
  }
  return prefix;
}

std::string presence_key(int rank) { return "present/" + std::to_string(rank); }

void wait_for_all(c10d::Store& store, int world_size, std::chrono::milliseconds timeout) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size; ++rank) keys.push_back(presence_key(rank));
  try {
    store.wait(keys, timeout);
  } catch (const std::exception& error) {
    std::vector<int> missing;
    for (int rank = 0; rank < world_size; ++rank) {
      try {
        if (!store.check({presence_key(rank)})) missing.push_back(rank);
      } catch (const std::exception&) {
        throw CommError({.what = "rank 0 was lost while the ranks were meeting",
                         .where = std::string("rendezvous: ") + error.what(),
                         .hint = "look at the output of rank 0"});
      }
    }
    throw CommError({.what = list_ranks(missing) + " did not come within " +
                             std::to_string(seconds(timeout)) + " s (" +
                             std::to_string(world_size - missing.size()) + " of " +
                             std::to_string(world_size) + " are here)",
                     .where = "rendezvous",
                     .hint = "check that all ranks were started, with the same WORLD_SIZE"});
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
  const StorePtr base = process_store(ranks, timeout);
  const std::string prefix = attempt_prefix();
  const int64_t index = [&] {
    try {
      return base->add(prefix + "/groups/" + std::to_string(ranks.rank), 1);
    } catch (const std::exception& error) {
      throw CommError({.what = "rank 0 was lost while the ranks were meeting",
                       .where = std::string("rendezvous: ") + error.what(),
                       .hint = "look at the output of rank 0"});
    }
  }();
  const std::string group = prefix + "/group/" + std::to_string(index);
  Meeting meeting;
  meeting.store = c10::make_intrusive<c10d::PrefixStore>(group, base);
  meeting.store->set(presence_key(ranks.rank), std::string("1"));
  wait_for_all(*meeting.store, ranks.world_size, timeout);
  meeting.second_connection =
      c10::make_intrusive<c10d::PrefixStore>(group, connect(ranks, false, timeout));
  return meeting;
}

}  // namespace accelerate::comm
