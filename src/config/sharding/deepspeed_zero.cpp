// zero_optimization.
#include <array>
#include <string_view>

#include "accelerate/errors.h"
#include "config/sharding/deepspeed_plan.h"
#include "config/sharding/deepspeed_section.h"

namespace accelerate::config {
namespace {

constexpr const char* kZeroPath = "zero_optimization";
constexpr int kParameterStage = 3;

constexpr std::array<std::string_view, 3> kOffloadDevices = {"none", "cpu", "nvme"};

// `older` is a name that asked for the same on the CPU.
OffloadPlan offload_plan(const DeepspeedDocument& document, const DeepspeedSection& zero,
                         const std::string& part, const char* older) {
  const DeepspeedSection section(document, zero.path_of("offload_" + part));
  OffloadPlan plan;
  plan.device = static_cast<OffloadDevice>(section.choice("device", kOffloadDevices, 0));
  if (zero.flag(older, false)) {
    if (section.is_present()) {
      refuse_contradiction(std::string(older) + " is the older name of offload_" + part,
                           zero.place_of(older), document.place_of(zero.path_of("offload_" + part)),
                           std::string("leave ") + older + " out");
    }
    plan.device = OffloadDevice::kCpu;
  }
  const bool is_parameters = part == "param";
  plan.pin_memory = section.flag("pin_memory", false);
  plan.buffer_count = section.integer("buffer_count", is_parameters ? 5 : 4);
  if (is_parameters) {
    plan.buffer_numbers = section.integer("buffer_size", 100'000'000);
    plan.numbers_in_memory = section.integer("max_in_cpu", 1'000'000'000);
  }
  if (plan.device != OffloadDevice::kNvme) return plan;
  plan.nvme_path = section.text("nvme_path", "");
  if (plan.nvme_path.empty() || plan.nvme_path == "none") {
    refuse_contradiction(section.path_of("device") + " is nvme, but no folder is named",
                         section.place_of("device"), section.place_of("nvme_path"),
                         "\"nvme_path\": \"/local_nvme\"");
  }
  return plan;
}

void check_offload(const ZeroPlan& plan, const DeepspeedSection& zero) {
  const std::string stage = "stage is " + std::to_string(plan.stage);
  const auto refuse_offload = [&](const char* key, const std::string& why) {
    refuse_contradiction(std::string(key) + " is asked for, but " + stage + ": " + why,
                         zero.place_of(std::string(key) + ".device"), zero.place_of("stage"),
                         "another stage, or \"device\": \"none\"");
  };
  if (plan.optimizer_offload.device != OffloadDevice::kNone && plan.stage == 0) {
    refuse_offload("offload_optimizer", "only stages 1 to 3 offload");
  }
  if (plan.parameter_offload.device != OffloadDevice::kNone && plan.stage != kParameterStage) {
    refuse_offload("offload_param", "only stage 3 offloads parameters");
  }
}

bool saves_16bit_model(const DeepspeedSection& zero) {
  constexpr const char* kName = "stage3_gather_16bit_weights_on_model_save";
  constexpr const char* kOlder = "stage3_gather_fp16_weights_on_model_save";
  const bool is_on = zero.flag(kName, false);
  const bool was_on = zero.flag(kOlder, false);
  if (zero.has(kName) && zero.has(kOlder) && is_on != was_on) {
    refuse_contradiction(std::string(kOlder) + " is the older name of " + kName + ", and differs",
                         zero.place_of(kOlder), zero.place_of(kName),
                         std::string("leave ") + kOlder + " out");
  }
  return is_on || was_on;
}

}  // namespace

ZeroPlan zero_plan(const DeepspeedDocument& document) {
  const DeepspeedSection zero(document, kZeroPath);
  ZeroPlan plan;
  plan.stage = static_cast<int>(zero.integer("stage", 0, 0, kParameterStage));
  plan.reduce_bucket = zero.integer("reduce_bucket_size", plan.reduce_bucket);
  plan.gather_bucket = zero.integer("allgather_bucket_size", plan.gather_bucket);
  plan.overlaps_reduction = zero.flag("overlap_comm", plan.stage == kParameterStage);
  plan.allows_unused_parameters = zero.flag("ignore_unused_parameters", true);
  plan.update_tile = zero.integer("sub_group_size", plan.update_tile);
  plan.prefetch = zero.integer("stage3_prefetch_bucket_size", plan.prefetch);
  plan.persistence_threshold =
      zero.integer("stage3_param_persistence_threshold", plan.persistence_threshold);
  plan.model_persistence_threshold =
      zero.integer("stage3_model_persistence_threshold", plan.model_persistence_threshold);
  plan.max_live_parameters = zero.integer("stage3_max_live_parameters", plan.max_live_parameters);
  plan.max_reuse_distance = zero.integer("stage3_max_reuse_distance", plan.max_reuse_distance);
  plan.saves_16bit_model = saves_16bit_model(zero);
  plan.shards_at_init = document.shards_at_init;
  // DeepSpeed writes -1 for all ranks.
  const int64_t shard_size = zero.integer("mics_shard_size", -1, -1);
  if (shard_size == 0) zero.refuse("mics_shard_size", "a number of ranks, or -1 for all");
  if (shard_size > 0) plan.shard_size = shard_size;
  plan.optimizer_offload = offload_plan(document, zero, "optimizer", "cpu_offload");
  plan.parameter_offload = offload_plan(document, zero, "param", "cpu_offload_param");
  check_offload(plan, zero);
  return plan;
}

}  // namespace accelerate::config
