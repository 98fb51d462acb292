// One outcome for all ranks of a save or a load.
#pragma once

#include <exception>
#include <functional>

#include "accelerate/communicator.h"

namespace accelerate::checkpoint {

// If `own` is an error on some ranks, throws on all of them: the error of the first such rank, as
// what it is where that is CheckpointError or UsageError, stamped with its rank; as CheckpointError
// elsewhere. That rank itself throws what it had. CommError is thrown at once, without asking.
// Collective; one small exchange.
void agree(Communicator& ranks, const std::exception_ptr& own);

// What `action` throws.
std::exception_ptr caught(const std::function<void()>& action);

// An error as bytes that another rank can throw; empty for none.
std::string error_bytes(const std::exception_ptr& error);
// Throws the error that `bytes` of rank `rank` are.
[[noreturn]] void throw_error_of(const std::string& bytes, int rank, int world_size);

}  // namespace accelerate::checkpoint
