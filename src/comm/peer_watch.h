// Finds out, when a collective fails, which ranks are to blame.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "comm/collective_log.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// A thread on every rank that waits, over a store connection of its own, for any rank to raise the
// alarm and then publishes what this rank is doing. In a run without failures it asks the store
// one small question every kPollInterval and nothing else; the hot path only writes the log.
//
// All talk with the store happens on that thread: a store that does not answer (rank 0 stopped)
// can hold it up, but never the user's thread.
//
// The store ends with the process of rank 0. So rank 0 says goodbye when its watch ends and waits
// a moment until the others have left too or stopped asking.
class PeerWatch {
 public:
  static constexpr std::chrono::milliseconds kPollInterval{500};
  static constexpr std::chrono::milliseconds kAnswerTimeout{2500};
  static constexpr std::chrono::milliseconds kGoodbyeTimeout{750};

  PeerWatch(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<const CollectiveLog> log,
            int rank, int world_size);
  // Blocks at most a little over kGoodbyeTimeout, and only while other ranks go on or the store
  // does not answer.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Raises the alarm and waits a little over kAnswerTimeout for the others' records. Returns one
  // sentence that says which ranks did not arrive at collective `sequence` and what each did last,
  // or that rank 0 and with it the store is gone. Does not throw.
  std::string explain_failure(int64_t sequence);

 private:
  class Watcher;  // what the thread works on; shared, so that a thread that hangs can be left
  std::shared_ptr<Watcher> watcher_;
  std::thread thread_;
};

}  // namespace accelerate::comm
