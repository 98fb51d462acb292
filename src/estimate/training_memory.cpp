#include "estimate/training_memory.h"

#include <algorithm>
#include <array>

namespace accelerate::estimate {
namespace {

constexpr std::array kDtypes{Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16, Dtype::kInt8,
                             Dtype::kInt4};
constexpr std::array kOptimizers{Optimizer::kAdam, Optimizer::kSgd, Optimizer::kAdam8bit};
constexpr std::array kShardings{Sharding::kDdp, Sharding::kZero1, Sharding::kZero2,
                                Sharding::kZero3};
constexpr uint64_t kLeast8bit = 4096;
constexpr uint64_t kBlock8bit = 256;

uint64_t share(uint64_t bytes, uint64_t ranks) { return (bytes + ranks - 1) / ranks; }

uint64_t adam8bit_bytes(uint64_t floats) {
  if (floats < kLeast8bit) return 8 * floats;
  return 2 * (floats + 4 * ((floats + kBlock8bit - 1) / kBlock8bit));
}

}  // namespace

std::span<const Dtype> all_dtypes() { return kDtypes; }
std::span<const Optimizer> all_optimizers() { return kOptimizers; }
std::span<const Sharding> all_shardings() { return kShardings; }

const char* name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return "float32";
    case Dtype::kFloat16:
      return "float16";
    case Dtype::kBfloat16:
      return "bfloat16";
    case Dtype::kInt8:
      return "int8";
    case Dtype::kInt4:
      return "int4";
  }
  return "";
}

const char* name_of(Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kAdam:
      return "adam";
    case Optimizer::kSgd:
      return "sgd";
    case Optimizer::kAdam8bit:
      return "adam8bit";
  }
  return "";
}

const char* name_of(Sharding sharding) {
  switch (sharding) {
    case Sharding::kDdp:
      return "DDP";
    case Sharding::kZero1:
      return "ZeRO-1";
    case Sharding::kZero2:
      return "ZeRO-2";
    case Sharding::kZero3:
      return "ZeRO-3";
  }
  return "";
}

bool is_trainable(Dtype dtype) { return dtype != Dtype::kInt8 && dtype != Dtype::kInt4; }

uint64_t bytes_in(Dtype dtype, uint64_t floats) {
  switch (dtype) {
    case Dtype::kFloat32:
      return 4 * floats;
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
      return 2 * floats;
    case Dtype::kInt8:
      return floats;
    case Dtype::kInt4:
      return (floats + 1) / 2;
  }
  return 0;
}

uint64_t optimizer_bytes(Optimizer optimizer, std::span<const Parameter> parameters) {
  uint64_t bytes = 0;
  for (const Parameter& parameter : parameters) {
    if (!parameter.is_float()) continue;
    const uint64_t floats = parameter.elements();
    if (optimizer == Optimizer::kAdam) bytes += 8 * floats;
    if (optimizer == Optimizer::kAdam8bit) bytes += adam8bit_bytes(floats);
  }
  return bytes;
}

TrainingNeed training_need(const ModelSizes& sizes, uint64_t optimizer_bytes, Dtype dtype,
                           Sharding sharding, uint64_t ranks) {
  const uint64_t whole = bytes_in(Dtype::kFloat32, sizes.floats);
  // With shards of parameters or gradients one layer is there whole.
  const uint64_t layer = ranks > 1 ? bytes_in(Dtype::kFloat32, sizes.largest_floats) : 0;
  TrainingNeed need{.weights = whole, .gradients = whole, .optimizer = optimizer_bytes};
  if (sharding != Sharding::kDdp) need.optimizer = share(optimizer_bytes, ranks);
  if (sharding == Sharding::kDdp || sharding == Sharding::kZero1) {
    need.gradients *= ranks > 1 ? 2 : 1;  // in the buckets too
  } else {
    need.gradients = share(whole, ranks);
  }
  if (sharding == Sharding::kZero3) {
    need.weights = share(whole, ranks) + layer;
    need.gradients += layer;
  }
  if (dtype != Dtype::kFloat32) need.weights += bytes_in(dtype, sizes.floats);
  need.weights += sizes.fixed_bytes;
  return need;
}

uint64_t ReferenceUsage::peak() const { return std::max({model, optimizer, gradients, step}); }

std::optional<ReferenceUsage> reference_usage(uint64_t bytes, const std::string& precision) {
  if (precision == "float32") {
    return ReferenceUsage{
        .model = bytes, .optimizer = 2 * bytes, .gradients = bytes, .step = 4 * bytes};
  }
  if (precision == "float16" || precision == "bfloat16" || precision == "fp8") {
    return ReferenceUsage{
        .model = bytes, .optimizer = 2 * bytes, .gradients = bytes + bytes / 2, .step = 2 * bytes};
  }
  return std::nullopt;
}

}  // namespace accelerate::estimate
