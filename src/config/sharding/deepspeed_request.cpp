#include <array>
#include <limits>
#include <utility>

#include "accelerate/errors.h"
#include "config/sharding/deepspeed_run.h"
#include "config/sharding/deepspeed_section.h"
#include "config/sharding/sharding_request.h"

namespace accelerate::config {
namespace {

constexpr const char* kZeroSection = "zero_optimization.";
constexpr int kStageOfParameters = 3;

// Of which "auto" is a size that follows from the model.
constexpr std::array<const char*, 3> kModelSizes = {"zero_optimization.reduce_bucket_size",
                                                    "zero_optimization.stage3_prefetch_bucket_size",
                                                    "zero_optimization.stage3_param_persistence_"
                                                    "threshold"};
constexpr const char* kSavedWeights = "zero_optimization.stage3_gather_16bit_weights_on_model_save";

[[noreturn]] void refuse_request(const std::string& what, const std::string& place,
                                 const std::string& hint) {
  throw ConfigError({.what = what, .where = place, .hint = hint});
}

void refuse_offload(const DeepspeedDocument& document, const OffloadPlan& plan,
                    const std::string& part, const char* older) {
  if (plan.device == OffloadDevice::kNone) return;
  const std::string key = kZeroSection + ("offload_" + part);
  const std::string named = kZeroSection + std::string(older);
  const bool is_older = document.find(named) != nullptr && document.find(key) == nullptr;
  refuse_request("offload_" + part + " to " +
                     (plan.device == OffloadDevice::kCpu ? "cpu" : "nvme") +
                     " is not part of this build",
                 document.place_of(is_older ? named : key + ".device"),
                 "\"device\": \"none\": everything stays in the memory of the devices");
}

// The keys of the stages that this build does in another way than DeepSpeed, or not at all.
void refuse_unavailable(const DeepspeedDocument& document, const ZeroPlan& zero, int ranks) {
  refuse_offload(document, zero.optimizer_offload, "optimizer", "cpu_offload");
  refuse_offload(document, zero.parameter_offload, "param", "cpu_offload_param");
  if (zero.shard_size && *zero.shard_size != ranks) {
    refuse_request("shards of " + std::to_string(*zero.shard_size) +
                       " ranks, with replicas of them, are not part of this build",
                   document.place_of("zero_optimization.mics_shard_size"),
                   "-1: all ranks share one replica");
  }
  if (zero.model_persistence_threshold != std::numeric_limits<int64_t>::max()) {
    refuse_request("a limit on all that stays whole is not part of this build",
                   document.place_of("zero_optimization.stage3_model_persistence_threshold"),
                   "stage3_param_persistence_threshold decides for each parameter");
  }
  if (zero.stage >= 2 && !zero.allows_unused_parameters) {
    refuse_request("stages 2 and 3 let parameters take no part in a pass",
                   document.place_of("zero_optimization.ignore_unused_parameters"),
                   "leave it out, or \"stage\": 1");
  }
}

template <class T>
AskedValue<T> asked_by(const DeepspeedDocument& document, const std::string& key, T value) {
  return {std::move(value), document.place_of(key)};
}

void take_types(const DeepspeedDocument& document, ShardingRequest& request) {
  const PrecisionPlan precision = precision_plan(document);
  const PlanDtype reduced = precision.reduce_dtype.value_or(PlanDtype::kFloat32);
  if (reduced != PlanDtype::kFloat32) {
    request.reduce_dtype = asked_by(document, "communication_data_type", reduced);
  }
  if (precision.accumulate_dtype.value_or(PlanDtype::kFloat32) != PlanDtype::kFloat32) {
    refuse_request("gradients are accumulated in float32",
                   document.place_of("data_types.grad_accum_dtype"),
                   "\"grad_accum_dtype\": \"fp32\"");
  }
  if (document.find("data_types.param_dtype") == nullptr) return;
  if (request.stage.value == kStageOfParameters) {
    request.param_dtype = asked_by(document, "data_types.param_dtype", precision.dtype);
  } else if (precision.dtype != PlanDtype::kFloat32) {
    request.without_effect.emplace_back("data_types.param_dtype (only in stage 3)");
  }
}

void take_sizes(const DeepspeedDocument& document, const ZeroPlan& zero, ShardingRequest& request) {
  const auto take = [&](const char* name, auto value, auto& field) {
    const std::string key = kZeroSection + std::string(name);
    if (document.find(key) == nullptr) return;
    if (std::string(name).starts_with("stage3_") && request.stage.value != kStageOfParameters) {
      request.without_effect.push_back(key + " (only in stage 3)");
      return;
    }
    field = asked_by(document, key, value);
  };
  take("reduce_bucket_size", zero.reduce_bucket, request.reduce_bucket);
  take("stage3_param_persistence_threshold", zero.persistence_threshold,
       request.persistence_threshold);
  take("stage3_max_live_parameters", zero.max_live_parameters, request.max_live_parameters);
  take("stage3_max_reuse_distance", zero.max_reuse_distance, request.max_reuse_distance);
  take("stage3_prefetch_bucket_size", zero.prefetch > 0, request.prefetches);
  if (request.reduce_bucket && request.reduce_bucket->value == 0) {
    refuse_request("a bucket of no numbers", request.reduce_bucket->place,
                   "leave it out, or \"reduce_bucket_size\": 5e8");
  }
}

}  // namespace

bool has_open_sizes(const DeepspeedDocument& document) {
  for (const char* key : kModelSizes) {
    if (document.is_auto(key)) return true;
  }
  return false;
}

void fill_sizes(DeepspeedDocument& document, std::optional<int64_t> hidden_size) {
  AutoValues values;
  if (hidden_size) values = auto_values(document, {.hidden_sizes = {*hidden_size}});
  for (const char* key : kModelSizes) {
    if (!document.is_auto(key)) continue;
    const auto found = values.find(key);
    const std::string place = document.place_of(key);
    if (found == values.end()) {
      document.set(key, nullptr, place);
    } else {
      document.set(key, found->second.value, place + ", filled in from " + found->second.place);
    }
  }
}

ShardingRequest deepspeed_request(const DeepspeedDocument& document, int ranks) {
  DeepspeedDocument settled = document;
  fill_sizes(settled, std::nullopt);
  if (settled.is_auto(kSavedWeights)) settled.set(kSavedWeights, false, document.name);
  const ZeroPlan zero = zero_plan(settled);
  ShardingRequest request;
  request.stage = asked_by(settled, "zero_optimization.stage", zero.stage);
  request.looks_for_unused_parameters =
      zero.stage < 2 && zero.allows_unused_parameters &&
      settled.find("zero_optimization.ignore_unused_parameters") != nullptr;
  refuse_unavailable(settled, zero, ranks);
  if (zero.saves_16bit_model) {
    request.without_effect.push_back(std::string(kSavedWeights) +
                                     " (save_model() writes the exact weights)");
  }
  take_types(settled, request);
  take_sizes(settled, zero, request);
  if (const auto* maximize = settled.find("optimizer.params.maximize");
      maximize != nullptr && *maximize == true) {
    refuse_request("optimizers that ascend are not part of this build",
                   document.place_of("optimizer.params.maximize"),
                   "leave maximize out, and negate the loss");
  }
  return request;
}

}  // namespace accelerate::config
