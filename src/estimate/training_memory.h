// How much memory a model takes, loaded and in training.
//
// Bytes of each trained number; P are the numbers, N the ranks:
//
//                        weights       gradients   optimizer
//   float32              4             4           Adam 8 · SGD 0 · 8-bit Adam about 2
//   float16, bfloat16    4 + 2         4           the same
//
// The six bytes are what autocast holds: the weights themselves and the copies that backward needs.
// DDP and ZeRO-1 hold gradients twice, in the buckets that are reduced too (from two ranks on).
// ZeRO shares the optimizer (1), gradients as well (2) and weights as well (3), but not the copies
// of autocast. ZeRO-3 also holds the largest layer whole, with its gradients. What ZeRO-2 holds of
// whole gradients for a moment, at most three buckets, is left out.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "estimate/parameter_list.h"

namespace accelerate::estimate {

enum class Dtype { kFloat32, kFloat16, kBfloat16, kInt8, kInt4 };
enum class Optimizer { kAdam, kSgd, kAdam8bit };
enum class Sharding { kDdp, kZero1, kZero2, kZero3 };

std::span<const Dtype> all_dtypes();
std::span<const Optimizer> all_optimizers();
std::span<const Sharding> all_shardings();
const char* name_of(Dtype dtype);          // "float32"
const char* name_of(Optimizer optimizer);  // "adam", "sgd", "adam8bit"
const char* name_of(Sharding sharding);    // "DDP", "ZeRO-1"

// Whether a model can be trained in that type.
bool is_trainable(Dtype dtype);

// Bytes of `floats` numbers in that type.
uint64_t bytes_in(Dtype dtype, uint64_t floats);

// The bytes that an optimizer keeps of these parameters. 8-bit Adam keeps tensors below 4096
// numbers in float32, and a scale for each 256 numbers of the others.
uint64_t optimizer_bytes(Optimizer optimizer, std::span<const Parameter> parameters);

struct TrainingNeed {
  uint64_t weights = 0;
  uint64_t gradients = 0;
  uint64_t optimizer = 0;
  uint64_t total() const { return weights + gradients + optimizer; }
};

// What each of `ranks` ranks needs, without activations. `dtype` is trainable, `ranks` positive.
TrainingNeed training_need(const ModelSizes& sizes, uint64_t optimizer_bytes, Dtype dtype,
                           Sharding sharding, uint64_t ranks);

// What the reference's estimate says of a model of `bytes` in float32, for comparison: of training
// in 16 bits its `step` leaves out weights and gradients. None for types that are not trained.
struct ReferenceUsage {
  uint64_t model = 0;
  uint64_t optimizer = 0;
  uint64_t gradients = 0;
  uint64_t step = 0;
  uint64_t peak() const;
};
std::optional<ReferenceUsage> reference_usage(uint64_t bytes, const std::string& precision);

}  // namespace accelerate::estimate
