// How rank 0 sends the batches that it reads to the other ranks. Internal: users do not call it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/batch.h"
#include "accelerate/detail/packed_value.h"
#include "accelerate/export.h"

namespace accelerate {
class Communicator;
}

namespace accelerate::detail {

// The batch that rank 0 read, before it was cut: `info` counts all its rows.
struct DispatchedRound {
  BatchInfo info{};
  int64_t position = 0;
};

// The part of `rank`, out of `world_size` equal ones.
ACCELERATE_EXPORT BatchInfo part_of(const BatchInfo& whole, int rank, int world_size);

// Collective: rank 0 calls one of the send functions where the others call receive(). Blocks until
// the data is there. All throw CommError if a peer is lost.
class ACCELERATE_EXPORT DispatchChannel {
 public:
  explicit DispatchChannel(std::shared_ptr<Communicator> ranks) : ranks_(std::move(ranks)) {}

  // `parts[r]` goes to rank r; parts[0] stays where it is and may be empty.
  void send(const DispatchedRound& round, const std::vector<PackedValue>& parts);
  void send_end();
  // The others throw DataError that says that rank 0 failed, and why.
  void send_failure(const std::string& why);

  struct Received {
    DispatchedRound round{};
    PackedValue part{};
  };
  // Nothing at the end of the pass.
  std::optional<Received> receive();

 private:
  std::shared_ptr<Communicator> ranks_;
};

}  // namespace accelerate::detail
