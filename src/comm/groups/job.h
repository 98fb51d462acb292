// What all groups of a job share on one rank.
#pragma once

#include <memory>
#include <utility>

#include "accelerate/communicator.h"
#include "accelerate/process_state.h"
#include "base/events.h"
#include "comm/watch/alarm.h"
#include "comm/watch/group_list.h"
#include "comm/watch/log_dump.h"
#include "comm/watch/peer_watch.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// Made by the group of all ranks and kept by each that is split off it, so that there is one watch,
// one connection to the store for it and one set of lifelines however many groups there are.
struct Job {
  Job(const ProcessState& of_rank, std::shared_ptr<EventStream> of_process)
      : state(of_rank), events(std::move(of_process)) {}

  const ProcessState state;
  ProcessGroupOptions options{};  // with their time-outs set, where there are several ranks
  const std::shared_ptr<EventStream> events;
  const std::shared_ptr<GroupList> groups = std::make_shared<GroupList>();
  const std::shared_ptr<Alarm> alarm = std::make_shared<Alarm>();
  c10::intrusive_ptr<c10d::Store> store{};  // null at world size 1, and so is the watch
  std::unique_ptr<LogDump> dump{};          // null at world size 1
  std::unique_ptr<PeerWatch> watch{};
};

}  // namespace accelerate::comm
