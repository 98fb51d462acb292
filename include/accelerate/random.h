// Seeds and states of random number generators, on this rank and across ranks.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate {

class Communicator;

struct SeedOptions {
  // Add the rank to the seed, so that each rank draws other numbers.
  bool device_specific = false;
  // This rank; read from the environment where it is not given, so that an Accelerator need not
  // exist yet.
  std::optional<int> rank{};
  // Use algorithms whose results are the same in every run, where libtorch has them; operations for
  // which it has none throw. Stays on.
  bool deterministic = false;
};

// Seeds libtorch's own generators, of the CPU and of all GPUs of this process. Returns the seed
// that was used here. Not collective. Like ProcessState it may be the first use of CUDA.
uint64_t set_seed(uint64_t seed, const SeedOptions& options = {});

// Which state is meant: an enumerator, or the reference's spelling of it.
class RngType {
 public:
  enum Value {
    kTorch,      // "torch": the CPU's own
    kCuda,       // "cuda": that of the current GPU
    kGenerator,  // "generator": one that is handed over, such as a sampler's
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
// before anything is sent, if `generator` is asked for and not given, or CUDA where there is none.
void synchronize_rng_states(Communicator& communicator, const std::vector<RngType>& types,
                            std::optional<at::Generator> generator = std::nullopt);

}  // namespace accelerate
