// Finds out, when a collective fails, which ranks are to blame, and ends those that cannot succeed.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "accelerate/process_state.h"
#include "comm/watch/alarm.h"
#include "comm/watch/diagnosis.h"
#include "comm/watch/first_values.h"
#include "comm/watch/group_list.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// A thread on every rank that waits, over a store connection of its own, for any rank to raise the
// alarm and then publishes what this rank is doing. In a run without failures it asks the store
// one small question every kPollInterval and nothing else; the hot path only writes the log.
//
// A rank that has failed or gone is out of the group, so no collective of the others can succeed
// any more; but the libraries below do not always notice (a send of Gloo may hang). So the watch
// rings the alarm of this rank when the first failing rank has found out who is to blame; when a
// collective still runs kGrace after a rank has gone (its lifeline closed), which makes this rank
// the first to fail; kGrace after rank 0, and the store, were lost; and when a collective that
// needs rank 0 still runs kGrace after it has left. The grace is for what a rank sent before it
// left: it may still be on its way.
//
// All talk with the store happens on that thread: a store that does not answer (rank 0 stopped)
// can hold it up, but never the user's thread.
//
// Where a collective waits for long, it logs what this rank waits for (WaitNotices), and ends the
// group on all ranks if another one waits for something else (WaitComparison).
//
// The store ends with the process of rank 0. So rank 0 says goodbye when its watch ends, leaves the
// latest values of first_value() and waits a moment until the others have left too, or have taken
// these and stopped asking.
class PeerWatch {
 public:
  static constexpr std::chrono::milliseconds kPollInterval{500};
  static constexpr std::chrono::milliseconds kAnswerTimeout{2500};
  static constexpr std::chrono::milliseconds kGoodbyeTimeout{750};
  static constexpr std::chrono::milliseconds kGrace{1200};
  static constexpr std::chrono::milliseconds kFirstValueTimeout{2000};

  // `events` is the stream in which the logs of `groups` write.
  PeerWatch(c10::intrusive_ptr<c10d::Store> store, std::shared_ptr<const GroupList> groups,
            std::shared_ptr<const EventStream> events, std::shared_ptr<Alarm> alarm,
            const RankEnvironment& ranks);
  // Blocks at most a little over kGoodbyeTimeout, and only while other ranks go on or the store
  // does not answer.
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Raises the alarm and waits a little over kAnswerTimeout for the others' records, on rank 0 as
  // long again until they know what it says, since the store may end with the caller. Says which
  // ranks did not arrive at collective `sequence` of `group`, what each did last in it and whether
  // it has ended, or that rank 0 and with it the store is gone. Returns at once what another rank
  // has found out before. Does not throw.
  Diagnosis explain_failure(std::shared_ptr<const GroupEntry> group, int64_t sequence);

  // Ends the group on all ranks: their next collective, or the one that they wait for, fails with
  // `diagnosis`, or with what another rank has found out before, which is returned. Waits a little
  // over kAnswerTimeout at most until the others know. Does not throw.
  Diagnosis tell_all(Diagnosis diagnosis);

  // Puts `value` into the store unless another rank has put one there under `key`; returns that one
  // then. Nothing also if the store does not answer within kFirstValueTimeout. Keys are forgotten
  // some time later. Once rank 0 has left: the value that it knew under `key`; where it knew none,
  // or was lost, this says once that nothing can be compared any more. Does not throw.
  std::optional<FirstValue> first_value(const std::string& key, const std::string& value);

 private:
  class Watcher;  // what the thread works on; shared, so that a thread that hangs can be left
  std::shared_ptr<Watcher> watcher_;
  std::thread thread_;
  int exceptions_at_begin_;
};

}  // namespace accelerate::comm
