// The parts of c10d that this project stands on.
#pragma once

#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

namespace accelerate::compat {

// True for the exceptions with which c10d, its stores and Gloo report that peers cannot be
// reached, as opposed to errors in the user's own code.
bool is_communication_failure(const std::exception& error);

// An exception of that kind.
std::exception_ptr make_communication_failure(const std::string& what);

// Gloo, with a way to end it.
class GlooBackend final : public c10d::ProcessGroupGloo {
 public:
  using c10d::ProcessGroupGloo::ProcessGroupGloo;

  // Closes the connections to all peers, who notice at once. Returns when nothing is read from or
  // written to tensors any more. Collectives that run may fail, or hang until their timeout; later
  // ones fail. Does not throw.
  void close_connections() noexcept;
};

// True for libtorch's other exceptions, with which it and c10d's backends refuse arguments before
// anything is sent.
bool is_refusal(const std::exception& error);

// An IValue as bytes and back. Reading refuses what libtorch's own unpickler refuses; it runs no
// code.
std::string to_bytes(const c10::IValue& value);
c10::IValue from_bytes(const std::string& bytes);

}  // namespace accelerate::compat
