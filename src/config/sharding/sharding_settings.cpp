#include "config/sharding/sharding_settings.h"

#include <algorithm>
#include <utility>

namespace accelerate::config {
namespace {

using SV = std::string_view;

constexpr ShardingSetting deepspeed_row(SV name, SV variable, SV decides) {
  return {ShardingFamily::kDeepspeed, name, variable, decides};
}

constexpr ShardingSetting fsdp_row(SV name, SV variable, SV decides) {
  return {ShardingFamily::kFsdp, name, variable, decides};
}

constexpr ShardingSetting kShardingSettings[] = {
    // The whole configuration; what the others below say has its place in it.
    deepspeed_row("deepspeed_config_file", "ACCELERATE_DEEPSPEED_CONFIG_FILE", "."),
    deepspeed_row("zero_stage", "ACCELERATE_DEEPSPEED_ZERO_STAGE", "zero_optimization.stage"),
    deepspeed_row("offload_optimizer_device", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
                  "zero_optimization.offload_optimizer.device"),
    deepspeed_row("offload_param_device", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
                  "zero_optimization.offload_param.device"),
    deepspeed_row("offload_optimizer_nvme_path", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
                  "zero_optimization.offload_optimizer.nvme_path"),
    deepspeed_row("offload_param_nvme_path", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
                  "zero_optimization.offload_param.nvme_path"),
    deepspeed_row("zero3_save_16bit_model", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
                  "zero_optimization.stage3_gather_16bit_weights_on_model_save"),
    deepspeed_row("gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
                  "gradient_accumulation_steps"),
    deepspeed_row("gradient_clipping", "ACCELERATE_GRADIENT_CLIPPING", "gradient_clipping"),
    // No key of DeepSpeed: whether parameters are sharded while the model is built.
    deepspeed_row("zero3_init_flag", "ACCELERATE_DEEPSPEED_ZERO3_INIT", "shards_at_init"),
    deepspeed_row("deepspeed_moe_layer_cls_names", "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES", ""),

    fsdp_row("fsdp_version", "FSDP_VERSION", "version"),
    fsdp_row("fsdp_sharding_strategy", "FSDP_SHARDING_STRATEGY", "sharding"),
    fsdp_row("fsdp_reshard_after_forward", "FSDP_RESHARD_AFTER_FORWARD", "reshard_after_forward"),
    fsdp_row("fsdp_auto_wrap_policy", "FSDP_AUTO_WRAP_POLICY", "units"),
    fsdp_row("fsdp_transformer_layer_cls_to_wrap", "FSDP_TRANSFORMER_CLS_TO_WRAP", "unit_classes"),
    fsdp_row("fsdp_min_num_params", "FSDP_MIN_NUM_PARAMS", "min_num_params"),
    fsdp_row("fsdp_offload_params", "FSDP_OFFLOAD_PARAMS", "offload_params"),
    fsdp_row("fsdp_cpu_ram_efficient_loading", "FSDP_CPU_RAM_EFFICIENT_LOADING",
             "cpu_ram_efficient_loading"),
    fsdp_row("fsdp_sync_module_states", "FSDP_SYNC_MODULE_STATES", "sync_module_states"),
    fsdp_row("fsdp_activation_checkpointing", "FSDP_ACTIVATION_CHECKPOINTING",
             "activation_checkpointing"),
    fsdp_row("fsdp_activation_checkpointing_offload", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD",
             "activation_offload"),
    fsdp_row("fsdp_ignored_modules", "FSDP_IGNORED_MODULES", "ignored_modules"),
    fsdp_row("parallelism_config_dp_shard_size", "PARALLELISM_CONFIG_DP_SHARD_SIZE", "shard_size"),
    fsdp_row("parallelism_config_dp_replicate_size", "PARALLELISM_CONFIG_DP_REPLICATE_SIZE",
             "replicas"),
    fsdp_row("fsdp_state_dict_type", "FSDP_STATE_DICT_TYPE", ""),
    fsdp_row("fsdp_backward_prefetch", "FSDP_BACKWARD_PREFETCH", ""),
    fsdp_row("fsdp_forward_prefetch", "FSDP_FORWARD_PREFETCH", ""),
    fsdp_row("fsdp_use_orig_params", "FSDP_USE_ORIG_PARAMS", ""),
};

// Whether the comma-separated `fields` hold `name`.
bool holds_field(std::string_view fields, std::string_view name) {
  while (!fields.empty()) {
    const size_t comma = fields.find(',');
    if (fields.substr(0, comma) == name) return true;
    fields.remove_prefix(comma == fields.npos ? fields.size() : comma + 1);
  }
  return false;
}

}  // namespace

std::span<const ShardingSetting> sharding_settings() { return kShardingSettings; }

const ShardingSetting* find_sharding_setting(std::string_view name) {
  const auto found = std::ranges::find(kShardingSettings, name, &ShardingSetting::name);
  return found == std::end(kShardingSettings) ? nullptr : &*found;
}

GivenValues given_by_variables(VariableReader variable) {
  return [variable = std::move(variable)](std::string_view name) -> std::optional<GivenValue> {
    const ShardingSetting* setting = find_sharding_setting(name);
    if (setting == nullptr) return std::nullopt;
    const std::string variable_name(setting->variable);
    std::optional<std::string> text = variable(variable_name.c_str());
    if (!text || text->empty()) return std::nullopt;
    std::string place = "environment variable " + variable_name;
    const std::string from_file = variable("ACCELERATE_CONFIG_DS_FIELDS").value_or("");
    if (setting->family == ShardingFamily::kDeepspeed && holds_field(from_file, name)) {
      place += ", from deepspeed_config of the launcher's file";
    }
    return GivenValue{std::move(*text), std::move(place)};
  };
}

}  // namespace accelerate::config
