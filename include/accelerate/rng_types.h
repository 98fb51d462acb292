// Which random number generators the ranks of a job synchronise.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/export.h"

namespace accelerate {

class Communicator;

// Which state is meant: an enumerator, or the reference's spelling of it.
class ACCELERATE_EXPORT RngType {
 public:
  enum Value {
    kTorch,      // "torch": the CPU's own
    kCuda,       // "cuda": that of the GPU, or other accelerator, of this rank
    kXla,        // "xla": that of the XLA device of this process
    kGenerator,  // "generator": one that is passed in; for a loader what its order depends on,
                 // on which the ranks agree anyway unless one of them set another epoch
  };
  // Implicit, so that lists read {"torch", "generator"}.
  // NOLINTBEGIN(google-explicit-constructor)
  constexpr RngType(Value value) : value_(value) {}
  // Throws UsageError for another name.
  RngType(std::string_view name);
  RngType(const char* name) : RngType(std::string_view(name)) {}
  RngType(const std::string& name) : RngType(std::string_view(name)) {}
  // NOLINTEND(google-explicit-constructor)

  constexpr Value value() const { return value_; }
  friend constexpr bool operator==(RngType, RngType) = default;

 private:
  Value value_;
};

// Gives every rank the states of rank 0. Collective: all ranks, same `types`. Throws UsageError,
// before anything is sent, if `generator` is asked for and not given, or CUDA or XLA where there is
// none. `gpu` is the one that "cuda" means, without a number the current one of this thread; unset
// it is the current one of the kind that an Accelerator would choose.
ACCELERATE_EXPORT void synchronize_rng_states(Communicator& communicator,
                                              const std::vector<RngType>& types,
                                              std::optional<at::Generator> generator = std::nullopt,
                                              std::optional<c10::Device> gpu = std::nullopt);

}  // namespace accelerate
