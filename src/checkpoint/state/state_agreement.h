// One outcome for all ranks of a save or a load.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "accelerate/communicator.h"

namespace accelerate::checkpoint {

// What `action` throws.
std::exception_ptr caught(const std::function<void()>& action);

// The same for work of unlike length, by without_timeout(): reading and writing may outlast the
// timeout of the group. `action` must not talk to other ranks. Collective. Throws CommError, after
// `action`, if a rank is lost meanwhile.
std::exception_ptr caught_on_all(Communicator& ranks, const std::function<void()>& action);

// If `own` is an error on some ranks, throws on all of them, that rank included: the error of the
// first such rank as UsageError where it is one and as CheckpointError otherwise, stamped with that
// rank. Before that all ranks run `take_back`: whoever sees the error sees nothing left of what
// failed. Throws CommError at once if `ranks` are lost. Collective; one small exchange.
void agree(Communicator& ranks, const std::exception_ptr& own);
void agree(Communicator& ranks, const std::exception_ptr& own,
           const std::function<void()>& take_back);

struct Fact {
  std::string name;
  std::string value;
};
// Throws UsageError, the same on all ranks, that names the first fact in which a rank differs from
// rank 0. All ranks give the same names in the same order. Collective; one small exchange.
void require_same_facts(Communicator& ranks, const std::vector<Fact>& own,
                        const std::string& where);

// What an exception says, without the stack that libtorch appends.
std::string cause_text(const std::exception_ptr& error);

// An error as bytes that another rank can throw; empty for none.
std::string error_bytes(const std::exception_ptr& error);
// Throws the error that `bytes` of rank `rank` are.
[[noreturn]] void throw_error_of(const std::string& bytes, int rank, int world_size);

// Texts as one text, and back. None of them may hold a '\0'.
std::string to_fields(const std::vector<std::string>& texts);
std::vector<std::string> from_fields(const std::string& fields);

}  // namespace accelerate::checkpoint
