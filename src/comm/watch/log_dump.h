// Writes what a rank did last, when its job fails and when a signal asks for it.
#pragma once

#include <functional>
#include <list>
#include <memory>

#include "accelerate/process_state.h"
#include "comm/watch/alarm.h"
#include "comm/watch/group_list.h"

namespace accelerate::comm {

// As long as it lives, the end of its job (its alarm) and SIGUSR2 to this process write the last
// entries of the collective log of `groups`, and what this rank waits for or is in.
//
// After a failure they are added to the file collectives.rank_N.log in the folder that
// ACCELERATE_COLLECTIVE_LOG_DIR names; without that to the log of the library, at level info.
// After the signal to that file, or else to standard error. A thread of its own waits for the
// signal, so it also works while the store of the job does not answer. A program that handles
// SIGUSR2 before its first accelerator keeps it.
class LogDump {
 public:
  LogDump(std::shared_ptr<const GroupList> groups, std::shared_ptr<const EventStream> events,
          Alarm& alarm, const RankEnvironment& ranks);
  ~LogDump();
  // Of a rank that has failed, before it may end: returns when its log is written. Writes it once.
  void write_after_failure() const;

  LogDump(const LogDump&) = delete;
  LogDump& operator=(const LogDump&) = delete;

 private:
  // What is written. Shared with a call of the alarm that is under way when this object goes.
  struct Source;
  const std::shared_ptr<const Source> source_;
  const Alarm::Registration at_failure_;
  class SignalThread;
  const std::shared_ptr<SignalThread> thread_;  // one for the whole process
  const std::list<std::function<void()>>::iterator on_signal_;
};

}  // namespace accelerate::comm
