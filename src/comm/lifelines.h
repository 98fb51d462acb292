// Connections between the ranks that tell who has gone.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/process_state.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// A connection from each rank to rank 0 on which next to nothing is sent. The system closes it when
// the process at its end is no more, however that came, and rank 0 tells the others. A process that
// is only stopped, slow or cut off keeps its connection: silence says nothing.
//
// One that breaks though both ends live is made again. Where a rank cannot connect to rank 0, its
// end is not noticed here; nothing else depends on these connections. One thread at a time.
class Lifelines {
 public:
  // On rank 0: listens, on the loopback interface alone where all ranks are on this machine, and
  // says in `store` where. Throws what the store throws.
  Lifelines(c10::intrusive_ptr<c10d::Store> store, const RankEnvironment& ranks);
  ~Lifelines();
  Lifelines(const Lifelines&) = delete;
  Lifelines& operator=(const Lifelines&) = delete;

  // On the other ranks: connects. Waits for rank 0 a moment at most. Throws what the store throws.
  void open();
  // Takes in what has happened since the last call. Does not wait for anybody; does not throw.
  void look();

  // As of the last look(): whether `rank`, or any, has been gone for `time` or longer.
  bool is_gone(int rank, std::chrono::milliseconds time = {}) const;
  bool is_any_gone(std::chrono::milliseconds time) const;

 private:
  using Clock = std::chrono::steady_clock;

  // What a rank sends when it has connected.
  struct Greeting {
    uint64_t token = 0;
    int32_t rank = 0;
    int32_t unused = 0;
  };
  // Somebody who has connected to rank 0 and not yet sent all of it.
  struct Caller {
    int fd = -1;
    Greeting greeting{};
    size_t received = 0;
  };

  void listen();
  void connect();
  void accept_callers();
  void hear_callers();
  void check_lines();
  void hear_rank_zero();
  void note_closed(int rank);
  void note_open(int rank);
  void tell(int rank, int32_t message) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const RankEnvironment ranks_;
  uint64_t token_ = 0;  // tells these ranks from strangers at the same port
  uint16_t port_ = 0;   // of rank 0; 0: none
  int listener_ = -1;
  std::vector<Caller> callers_;
  std::map<int, int> lines_;  // descriptors by rank: of all others on rank 0, else of rank 0
  std::map<int, Clock::time_point> gone_since_;
  std::vector<char> unread_;  // part of a message of rank 0
};

}  // namespace accelerate::comm
