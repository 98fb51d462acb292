// Finds out, when a collective fails, which ranks are to blame.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/collective_log.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// A thread on every rank that waits, over a store connection of its own, for any rank to raise the
// alarm and then publishes what this rank is doing. In a run without failures it asks the store
// one small question every kPollInterval and nothing else; the hot path only writes the log.
//
// The store ends with the process of rank 0. So rank 0 says goodbye when its watch ends and waits
// a moment until the others have left too or stopped asking.
class PeerWatch {
 public:
  static constexpr std::chrono::milliseconds kPollInterval{500};
  static constexpr std::chrono::milliseconds kAnswerTimeout{2500};

  static constexpr std::chrono::milliseconds kGoodbyeTimeout{750};

  // `log` must outlive the watch.
  PeerWatch(c10::intrusive_ptr<c10d::Store> store, const CollectiveLog& log, int rank,
            int world_size);
  // On rank 0 blocks at most kGoodbyeTimeout, and only while other ranks go on.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Raises the alarm and waits at most kAnswerTimeout for the others' records. Returns one
  // sentence that says which ranks did not arrive at collective `sequence` and what each did last,
  // or that rank 0 and with it the store is gone. Does not throw.
  std::string explain_failure(int64_t sequence);

 private:
  enum class StoreState { kQuiet, kAlarmed, kClosing, kLost };

  void watch();
  // Asks the store once and returns what it now knows of it.
  StoreState look(StoreState before);
  void say_goodbye();
  void publish_record();
  // Records of the ranks that have answered the alarm; std::nullopt if the store is lost.
  std::optional<std::map<int, CollectiveRecord>> collect_records();
  std::string describe(const std::map<int, CollectiveRecord>& records, int64_t sequence) const;
  void remember_diagnosis();

  const c10::intrusive_ptr<c10d::Store> store_;
  const CollectiveLog& log_;
  const int rank_;
  const int world_size_;

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  StoreState store_state_ = StoreState::kQuiet;  // guarded by mutex_
  std::string diagnosis_of_a_peer_;  // what the first failing rank found out; guarded by mutex_
  std::thread thread_;
};

}  // namespace accelerate::comm
