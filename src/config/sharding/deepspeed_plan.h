// What a DeepSpeed configuration asks for, with every "auto" filled in: plain values from which the
// library makes its own options.
//
//   DeepspeedDocument document = deepspeed_document(given_by_variables(environment_variable));
//   set_precision(document, "bf16", "AcceleratorOptions::mixed_precision");
//   fill_auto(document, {.ranks = 2, .loader_batches = {8}});  // when objects are prepared
//   DeepspeedPlan plan = deepspeed_plan(document, 2);
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "config/sharding/deepspeed_document.h"
#include "config/sharding/warmup_schedule.h"

namespace accelerate::config {

enum class OffloadDevice { kNone, kCpu, kNvme };

struct OffloadPlan {
  OffloadDevice device = OffloadDevice::kNone;
  std::string nvme_path{};  // of kNvme
  bool pin_memory = false;
  int64_t buffer_count = 0;
  int64_t buffer_numbers = 0;     // of parameters
  int64_t numbers_in_memory = 0;  // of parameters, with kNvme

  bool operator==(const OffloadPlan&) const = default;
};

// Sizes count numbers (elements), as DeepSpeed's do, not bytes.
struct ZeroPlan {
  int stage = 0;
  int64_t reduce_bucket = 500'000'000;
  int64_t gather_bucket = 500'000'000;
  bool overlaps_reduction = false;
  bool allows_unused_parameters = true;
  int64_t update_tile = 1'000'000'000;
  int64_t prefetch = 50'000'000;
  int64_t persistence_threshold = 100'000;  // smaller parameters stay whole
  int64_t model_persistence_threshold = std::numeric_limits<int64_t>::max();
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  bool saves_16bit_model = false;
  bool shards_at_init = false;
  std::optional<int64_t> shard_size{};  // ranks that share a replica; nothing: all
  OffloadPlan optimizer_offload{};
  OffloadPlan parameter_offload{};

  bool operator==(const ZeroPlan&) const = default;
};

enum class PlanDtype { kFloat32, kFloat16, kBfloat16 };

struct LossScalePlan {
  double fixed = 0;  // 0: the scale adapts, by the values below
  int64_t initial_power = 16;
  int64_t window = 1000;
  int64_t hysteresis = 2;
  bool counts_in_a_row = false;
  double smallest = 1;

  bool operator==(const LossScalePlan&) const = default;
};

struct PrecisionPlan {
  PlanDtype dtype = PlanDtype::kFloat32;  // of the computation; masters are float32
  std::optional<PlanDtype> reduce_dtype{};
  std::optional<PlanDtype> accumulate_dtype{};
  LossScalePlan loss_scale{};  // of kFloat16

  bool operator==(const PrecisionPlan&) const = default;
};

// total = micro x accumulation x ranks
struct BatchPlan {
  int64_t total = 0;
  int64_t micro = 0;
  int64_t accumulation_steps = 1;

  bool operator==(const BatchPlan&) const = default;
};

enum class PlanOptimizer { kAdam, kAdamW, kSgd };

struct OptimizerPlan {
  PlanOptimizer kind = PlanOptimizer::kAdamW;
  double lr = 1e-3;
  double weight_decay = 0;
  bool maximize = false;
  // Of Adam and AdamW.
  std::array<double, 2> betas{0.9, 0.999};
  double eps = 1e-8;
  bool amsgrad = false;
  // Of SGD.
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;

  bool operator==(const OptimizerPlan&) const = default;
};

struct DeepspeedPlan {
  ZeroPlan zero{};
  BatchPlan batch{};
  double max_norm = 0;  // 0: gradients are not clipped
  PrecisionPlan precision{};
  std::optional<OptimizerPlan> optimizer{};   // nothing: the program brings its own
  std::optional<WarmupSchedule> scheduler{};  // likewise
  std::vector<std::string> without_effect{};  // keys and settings, sorted, to be listed once

  bool operator==(const DeepspeedPlan&) const = default;
};

// Throws ConfigError that names the places for wrong values, an "auto" that is left, keys that are
// refused or unknown, settings that contradict each other and batch sizes that do not fit together.
DeepspeedPlan deepspeed_plan(const DeepspeedDocument& document, int ranks);

// The parts of it.
ZeroPlan zero_plan(const DeepspeedDocument& document);
PrecisionPlan precision_plan(const DeepspeedDocument& document);
BatchPlan batch_plan(const DeepspeedDocument& document, int ranks);
std::optional<OptimizerPlan> optimizer_plan(const DeepspeedDocument& document);
std::optional<WarmupSchedule> scheduler_plan(const DeepspeedDocument& document);

}  // namespace accelerate::config
