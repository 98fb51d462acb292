#include <array>

#include "config/schema_tables.h"

namespace accelerate::config {
namespace {

using SV = std::string_view;

constexpr std::array<SV, 2> kVersions = {"1", "2"};
constexpr std::array<SV, 10> kStrategies = {"FULL_SHARD",
                                            "SHARD_GRAD_OP",
                                            "NO_SHARD",
                                            "HYBRID_SHARD",
                                            "HYBRID_SHARD_ZERO2",
                                            "1",
                                            "2",
                                            "3",
                                            "4",
                                            "5"};
constexpr std::array<SV, 7> kReshards = {
    "true",     "false",        "FULL_SHARD",        "SHARD_GRAD_OP",
    "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"};
constexpr std::array<SV, 3> kWraps = {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"};
constexpr std::array<SV, 3> kPrefetches = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"};
constexpr std::array<SV, 3> kStateDicts = {"FULL_STATE_DICT", "LOCAL_STATE_DICT",
                                           "SHARDED_STATE_DICT"};
constexpr std::array<SV, 1> kContextBackends = {"torch"};
constexpr std::array<SV, 2> kContextStrategies = {"allgather", "alltoall"};
constexpr std::array<SV, 1> kSequenceBackends = {"deepspeed"};

constexpr Setting fsdp(SV name, Kind kind, std::optional<SV> preset, SV key, SV variable,
                       Spelling spelling, SV help, std::span<const SV> choices = {},
                       SV alias = {}) {
  return {.name = name,
          .group = Group::kFsdp,
          .kind = kind,
          .help = help,
          .preset = preset,
          .choices = choices,
          .least = 0,
          .file_key = key,
          .file_alias = alias,
          .variable = variable,
          .passed = Passed::kFsdp,
          .spelling = spelling};
}

// What only Python's library does.
constexpr Setting in_python(Setting setting) {
  setting.effect = Effect::kForwarded;
  return setting;
}

constexpr Setting mesh(SV name, Kind kind, std::optional<SV> preset, SV key, SV variable, SV help,
                       std::span<const SV> choices = {}, Passed passed = Passed::kParallelism) {
  return {.name = name,
          .group = Group::kParallelism,
          .kind = kind,
          .help = help,
          .preset = preset,
          .choices = choices,
          .least = 1,
          .most = 1'000'000,
          .file_key = key,
          .variable = variable,
          .passed = passed,
          .spelling = kind == Kind::kBool ? Spelling::kPython : Spelling::kAsIs,
          .effect = Effect::kForwarded};
}

constexpr Setting kFsdpSettings[] = {
    {.name = "use_fsdp",
     .group = Group::kFsdp,
     .kind = Kind::kSwitch,
     .help = "Shard parameters, gradients and optimizer state over the ranks",
     .preset = "false",
     .variable = "ACCELERATE_USE_FSDP",
     .passed = Passed::kIfTrue,
     .spelling = Spelling::kLower},
    fsdp("fsdp_version", Kind::kChoice, "1", "fsdp_config.fsdp_version", "FSDP_VERSION",
         Spelling::kAsIs, "Which FSDP: 1 or 2", kVersions),
    fsdp("fsdp_offload_params", Kind::kBool, "false", "fsdp_config.fsdp_offload_params",
         "FSDP_OFFLOAD_PARAMS", Spelling::kLower, "Keep parameters and gradients in host memory"),
    fsdp("fsdp_min_num_params", Kind::kInt, "100000000", "fsdp_config.fsdp_min_num_params",
         "FSDP_MIN_NUM_PARAMS", Spelling::kAsIs,
         "Parameters that a unit of SIZE_BASED_WRAP has at least"),
    fsdp("fsdp_sharding_strategy", Kind::kChoice, "FULL_SHARD",
         "fsdp_config.fsdp_sharding_strategy", "FSDP_SHARDING_STRATEGY", Spelling::kAsIs,
         "What version 1 shards", kStrategies),
    fsdp("fsdp_reshard_after_forward", Kind::kChoice, "true",
         "fsdp_config.fsdp_reshard_after_forward", "FSDP_RESHARD_AFTER_FORWARD", Spelling::kLower,
         "Free gathered parameters after forward: true or false in version 2, a strategy in 1",
         kReshards),
    fsdp("fsdp_auto_wrap_policy", Kind::kChoice, std::nullopt, "fsdp_config.fsdp_auto_wrap_policy",
         "FSDP_AUTO_WRAP_POLICY", Spelling::kAsIs, "How the model is split into units", kWraps),
    fsdp("fsdp_transformer_layer_cls_to_wrap", Kind::kText, std::nullopt,
         "fsdp_config.fsdp_transformer_layer_cls_to_wrap", "FSDP_TRANSFORMER_CLS_TO_WRAP",
         Spelling::kAsIs,
         "Classes that TRANSFORMER_BASED_WRAP turns into units, separated by commas"),
    in_python(fsdp("fsdp_backward_prefetch", Kind::kChoice, std::nullopt,
                   "fsdp_config.fsdp_backward_prefetch", "FSDP_BACKWARD_PREFETCH", Spelling::kAsIs,
                   "When version 1 gathers the next unit in backward", kPrefetches,
                   "fsdp_backward_prefetch_policy")),
    in_python(fsdp("fsdp_state_dict_type", Kind::kChoice, std::nullopt,
                   "fsdp_config.fsdp_state_dict_type", "FSDP_STATE_DICT_TYPE", Spelling::kAsIs,
                   "What checkpoints hold", kStateDicts)),
    in_python(fsdp("fsdp_forward_prefetch", Kind::kBool, "false",
                   "fsdp_config.fsdp_forward_prefetch", "FSDP_FORWARD_PREFETCH", Spelling::kLower,
                   "Gather the next unit while one computes")),
    in_python(fsdp("fsdp_use_orig_params", Kind::kBool, "true", "fsdp_config.fsdp_use_orig_params",
                   "FSDP_USE_ORIG_PARAMS", Spelling::kLower,
                   "Let version 1 keep the shapes of parameters")),
    in_python(fsdp("fsdp_cpu_ram_efficient_loading", Kind::kBool, "true",
                   "fsdp_config.fsdp_cpu_ram_efficient_loading", "FSDP_CPU_RAM_EFFICIENT_LOADING",
                   Spelling::kLower, "Read checkpoints on the first rank only")),
    in_python(fsdp("fsdp_sync_module_states", Kind::kBool, "true",
                   "fsdp_config.fsdp_sync_module_states", "FSDP_SYNC_MODULE_STATES",
                   Spelling::kLower, "Start all ranks with the weights of rank 0")),
    fsdp("fsdp_activation_checkpointing", Kind::kBool, "false",
         "fsdp_config.fsdp_activation_checkpointing", "FSDP_ACTIVATION_CHECKPOINTING",
         Spelling::kLower, "Recompute activations in backward instead of keeping them"),
    fsdp("fsdp_activation_checkpointing_offload", Kind::kBool, std::nullopt,
         "fsdp_config.fsdp_activation_checkpointing_offload",
         "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", Spelling::kLower,
         "Keep the inputs of what is recomputed in host memory"),
    {.name = "fsdp_ignored_modules",
     .group = Group::kFsdp,
     .kind = Kind::kText,
     .help = "Modules to leave unsharded, as a regular expression",
     .has_flag = false,
     .file_key = "fsdp_config.fsdp_ignored_modules",
     .variable = "FSDP_IGNORED_MODULES",
     .passed = Passed::kFsdp},

    {.name = "use_parallelism_config",
     .group = Group::kParallelism,
     .kind = Kind::kSwitch,
     .help = "Arrange the ranks as a mesh; needs --use_fsdp --fsdp_version 2",
     .preset = "false",
     .variable = "ACCELERATE_USE_PARALLELISM_CONFIG",
     .passed = Passed::kIfTrue,
     .spelling = Spelling::kLower,
     .effect = Effect::kForwarded},
    mesh("parallelism_config_dp_replicate_size", Kind::kInt, "1",
         "parallelism_config.parallelism_config_dp_replicate_size",
         "PARALLELISM_CONFIG_DP_REPLICATE_SIZE", "Replicas of the model"),
    mesh("parallelism_config_dp_shard_size", Kind::kInt, "1",
         "parallelism_config.parallelism_config_dp_shard_size", "PARALLELISM_CONFIG_DP_SHARD_SIZE",
         "Ranks over which a replica is sharded"),
    mesh("parallelism_config_tp_size", Kind::kInt, "1",
         "parallelism_config.parallelism_config_tp_size", "PARALLELISM_CONFIG_TP_SIZE",
         "Ranks that share each layer"),
    mesh("parallelism_config_cp_size", Kind::kInt, "1",
         "parallelism_config.parallelism_config_cp_size", "PARALLELISM_CONFIG_CP_SIZE",
         "Ranks that share each sequence"),
    mesh("parallelism_config_cp_backend", Kind::kChoice, "torch",
         "parallelism_config.parallelism_config_cp_backend", "PARALLELISM_CONFIG_CP_BACKEND",
         "What context parallelism is built on", kContextBackends),
    mesh("parallelism_config_cp_comm_strategy", Kind::kChoice, "allgather",
         "parallelism_config.parallelism_config_cp_comm_strategy",
         "PARALLELISM_CONFIG_CP_COMM_STRATEGY", "How its ranks exchange keys and values",
         kContextStrategies, Passed::kContextParallel),
    mesh("parallelism_config_sp_size", Kind::kInt, "1",
         "parallelism_config.parallelism_config_sp_size", "PARALLELISM_CONFIG_SP_SIZE",
         "Ranks that share each sequence by heads"),
    mesh("parallelism_config_sp_backend", Kind::kChoice, "deepspeed",
         "parallelism_config.parallelism_config_sp_backend", "PARALLELISM_CONFIG_SP_BACKEND",
         "What sequence parallelism is built on", kSequenceBackends),
    mesh("parallelism_config_sp_seq_length", Kind::kText, std::nullopt,
         "parallelism_config.parallelism_config_sp_seq_length", "PARALLELISM_CONFIG_SP_SEQ_LENGTH",
         "Length of the sequences, if all have the same", {}, Passed::kSequenceParallel),
    mesh("parallelism_config_sp_seq_length_is_variable", Kind::kBool, "true",
         "parallelism_config.parallelism_config_sp_seq_length_is_variable",
         "PARALLELISM_CONFIG_SP_SEQ_LENGTH_IS_VARIABLE", "Lengths may differ between batches", {},
         Passed::kSequenceParallel),
    mesh("parallelism_config_sp_attn_implementation", Kind::kText, "sdpa",
         "parallelism_config.parallelism_config_sp_attn_implementation",
         "PARALLELISM_CONFIG_SP_ATTN_IMPLEMENTATION", "Attention used with sequence parallelism",
         {}, Passed::kSequenceParallel),
};

}  // namespace

std::span<const Setting> fsdp_settings() { return kFsdpSettings; }

}  // namespace accelerate::config
