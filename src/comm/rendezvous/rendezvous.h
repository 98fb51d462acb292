// How the ranks of a job find each other: a key-value store on rank 0.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/process_state.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// What a group opens its process groups with.
struct Meeting {
  // Keys of this group alone.
  c10::intrusive_ptr<c10d::Store> store;
  // The same keys over a connection of their own, for a background thread.
  c10::intrusive_ptr<c10d::Store> second_connection;
};

// Meets all ranks of `ranks`. Collective; blocks at most `timeout` in all, then throws CommError
// that names the ranks that did not join. Ranks of another job, of another attempt of it, or that
// believe in another number of ranks count as not come; they are refused at once where rank 0
// hosts the store.
//
// Rank 0 hosts the store (unless another process does) and keeps it for the life of its process:
// a port can be bound once, so all groups of a process share it and tell their keys apart by the
// order in which they were opened.
Meeting meet(const RankEnvironment& ranks, std::chrono::milliseconds timeout);

// "rank 2", "ranks 1 and 3", "ranks 0, 1 and 4".
std::string list_ranks(const std::vector<int>& ranks);

}  // namespace accelerate::comm
