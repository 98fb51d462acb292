// Connections between the ranks that tell who has gone.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/process_state.h"
#include "base/unique_fd.h"
#include "compat/c10d.h"

namespace accelerate::comm {

// A connection from each rank to rank 0 on which next to nothing is sent. The system closes it when
// the peer process exits, for whatever reason, and rank 0 tells the others. A process that is only
// stopped, slow or cut off keeps its connection: silence says nothing.
//
// One that breaks though both ends live is made again, and one that could not be made is tried
// again. While a rank is not connected, its exit is not noticed here; nothing else depends on these
// connections. One thread at a time.
class Lifelines {
 public:
  // On rank 0: listens, on the loopback interface alone where all ranks are on this machine, and
  // says in `store` where. Throws what the store throws.
  Lifelines(c10::intrusive_ptr<c10d::Store> store, const RankEnvironment& ranks);
  Lifelines(const Lifelines&) = delete;
  Lifelines& operator=(const Lifelines&) = delete;

  // On the other ranks: connects. Waits for rank 0 a moment at most; look() tries again later.
  // Throws what the store throws.
  void open();
  // Takes in what has happened since the last call. Waits only to connect, a moment at most and at
  // most once a second. Does not throw.
  void look();

  // On the other ranks: whether there is a connection to rank 0, as of the last look().
  bool is_connected() const { return !lines_.empty(); }
  // As of the last look(): whether `rank` has been gone for `time` or longer.
  bool is_gone(int rank, std::chrono::milliseconds time = {}) const;

 private:
  using Clock = std::chrono::steady_clock;

  // What a rank sends when it has connected.
  struct Greeting {
    uint64_t token = 0;
    int32_t rank = 0;
    int32_t unused = 0;
  };
  // Somebody who has connected to rank 0 and not yet sent all of it.
  struct PendingPeer {
    UniqueFd line{};
    Greeting greeting{};
    size_t received = 0;
  };

  void listen();
  void connect();
  void accept_peers();
  void read_greetings();
  void check_lines();
  void read_rank_zero();
  void learn_port();
  void try_to_connect();
  void note_closed(int rank);
  void note_open(int rank);
  void tell(int rank, int32_t message) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const RankEnvironment ranks_;
  uint64_t token_ = 0;            // tells these ranks from strangers at the same port
  std::optional<uint16_t> port_;  // of rank 0, once it is known; 0: there is none
  UniqueFd listener_;
  std::vector<PendingPeer> pending_;
  std::map<int, UniqueFd> lines_;  // by rank: of all others on rank 0, else of rank 0
  std::map<int, Clock::time_point> gone_since_;
  std::vector<char> unread_;          // part of a message of rank 0
  Clock::time_point next_attempt_{};  // to connect
};

}  // namespace accelerate::comm
