// All that `accelerate estimate-memory` has to say about a model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "estimate/activation_memory.h"
#include "estimate/model_source.h"
#include "estimate/training_memory.h"

namespace accelerate::estimate {

struct GpuSet {
  uint64_t count = 0;
  uint64_t bytes = 0;    // of the smallest of them
  std::string source{};  // who says so
};

struct EstimateRequest {
  std::vector<Dtype> dtypes{all_dtypes().begin(), all_dtypes().end()};
  Optimizer optimizer = Optimizer::kAdam;  // of what is said about ranks and GPUs
  std::vector<uint64_t> ranks{1, 2, 4, 8};
  std::optional<BatchShape> batch{};
  std::optional<GpuSet> gpus{};
};

struct DtypeEstimate {
  Dtype dtype = Dtype::kFloat32;
  uint64_t largest_layer = 0;  // bytes, as all below
  uint64_t total = 0;
  // Of one rank alone; empty where the type is not trained.
  std::map<Optimizer, TrainingNeed> training{};
  std::optional<uint64_t> activations{};
  std::optional<ReferenceUsage> reference{};
};

struct RankEstimate {
  Dtype dtype = Dtype::kFloat32;
  Sharding sharding = Sharding::kDdp;
  uint64_t ranks = 1;
  uint64_t bytes = 0;  // of each rank, activations included where they are known
};

struct FitEstimate {
  Dtype dtype = Dtype::kFloat32;
  std::optional<Sharding> sharding{};  // none: loaded alone, spread layer by layer over the GPUs
  std::optional<uint64_t> gpus{};      // the fewest that do; none: not on all of them
};

struct MemoryEstimate {
  std::string origin{};
  std::string architecture{};  // "" where no config.json tells
  uint64_t parameters = 0;     // numbers that are trained
  uint64_t tensors = 0;
  std::string largest_layer{};
  std::vector<DtypeEstimate> dtypes{};
  std::vector<RankEstimate> ranks{};
  std::vector<FitEstimate> fits{};  // empty without GPUs
};

// What a GPU cannot give to a model: the context of CUDA and buffers of NCCL.
inline constexpr uint64_t kGpuReserve = uint64_t{768} << 20;

// Throws UsageError if activations are asked for and there is no config.json, ConfigError if it
// describes no known architecture.
MemoryEstimate estimate_memory(const ModelSource& model, const EstimateRequest& request);

}  // namespace accelerate::estimate
