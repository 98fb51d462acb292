#include <array>

#include "config/schema_tables.h"

namespace accelerate::config {
namespace {

using SV = std::string_view;

constexpr std::array<SV, 3> kDevices = {"none", "cpu", "nvme"};
constexpr std::array<SV, 7> kMultinodeLaunchers = {"pdsh",  "standard", "openmpi", "mvapich",
                                                   "mpich", "nossh",    "slurm"};

constexpr Setting deepspeed(SV name, Kind kind, SV key, SV variable, Spelling spelling, SV help,
                            std::span<const SV> choices = {}) {
  return {.name = name,
          .group = Group::kDeepspeed,
          .kind = kind,
          .help = help,
          .choices = choices,
          .file_key = key,
          .variable = variable,
          .passed = Passed::kDeepspeed,
          .spelling = spelling};
}

// What only Python's library does.
constexpr Setting elsewhere(Setting setting) {
  setting.effect = Effect::kForwarded;
  return setting;
}

// What DeepSpeed's own launcher is told; nothing of it reaches workers.
constexpr Setting launching(SV name, Kind kind, SV key, Effect effect, SV help) {
  return {.name = name,
          .group = Group::kDeepspeed,
          .kind = kind,
          .help = help,
          .file_key = key,
          .variable = kNoVariable,
          .effect = effect};
}

constexpr Setting kDeepspeedSettings[] = {
    {.name = "use_deepspeed",
     .group = Group::kDeepspeed,
     .kind = Kind::kSwitch,
     .help = "Shard as DeepSpeed's ZeRO does",
     .preset = "false",
     .variable = "ACCELERATE_USE_DEEPSPEED",
     .passed = Passed::kIfTrue,
     .spelling = Spelling::kLower},
    deepspeed("deepspeed_config_file", Kind::kPath, "deepspeed_config.deepspeed_config_file",
              "ACCELERATE_DEEPSPEED_CONFIG_FILE", Spelling::kAsIs,
              "DeepSpeed's own settings as JSON"),
    {.name = "zero_stage",
     .group = Group::kDeepspeed,
     .kind = Kind::kInt,
     .help = "What is sharded: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too",
     .least = 0,
     .most = 3,
     .file_key = "deepspeed_config.zero_stage",
     .variable = "ACCELERATE_DEEPSPEED_ZERO_STAGE",
     .passed = Passed::kDeepspeed},
    deepspeed("offload_optimizer_device", Kind::kChoice,
              "deepspeed_config.offload_optimizer_device",
              "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", Spelling::kLower,
              "Where optimizer state is kept", kDevices),
    deepspeed("offload_param_device", Kind::kChoice, "deepspeed_config.offload_param_device",
              "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", Spelling::kLower,
              "Where parameters are kept", kDevices),
    deepspeed("offload_optimizer_nvme_path", Kind::kPath,
              "deepspeed_config.offload_optimizer_nvme_path",
              "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH", Spelling::kAsIs,
              "Folder for optimizer state on NVMe"),
    deepspeed("offload_param_nvme_path", Kind::kPath, "deepspeed_config.offload_param_nvme_path",
              "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH", Spelling::kAsIs,
              "Folder for parameters on NVMe"),
    elsewhere(deepspeed("zero3_init_flag", Kind::kBool, "deepspeed_config.zero3_init_flag",
                        "ACCELERATE_DEEPSPEED_ZERO3_INIT", Spelling::kLower,
                        "Shard parameters while the model is built")),
    elsewhere(deepspeed("zero3_save_16bit_model", Kind::kBool,
                        "deepspeed_config.zero3_save_16bit_model",
                        "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", Spelling::kLower,
                        "Gather 16-bit weights of stage 3 when saving")),
    elsewhere(deepspeed("deepspeed_moe_layer_cls_names", Kind::kText,
                        "deepspeed_config.deepspeed_moe_layer_cls_names",
                        "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES", Spelling::kAsIs,
                        "Mixture-of-experts layers, separated by commas")),
    {.name = "deepspeed_multinode_launcher",
     .group = Group::kDeepspeed,
     .kind = Kind::kChoice,
     .help = "What starts DeepSpeed jobs on several machines; pdsh is ssh here",
     .fallback = "pdsh",
     .choices = kMultinodeLaunchers,
     .file_key = "deepspeed_config.deepspeed_multinode_launcher",
     .variable = kNoVariable},
    launching("deepspeed_hostfile", Kind::kPath, "deepspeed_config.deepspeed_hostfile",
              Effect::kUsed, "The machines of a DeepSpeed job: lines such as node1 slots=2"),
    launching("deepspeed_exclusion_filter", Kind::kText,
              "deepspeed_config.deepspeed_exclusion_filter", Effect::kNone,
              "Machines and GPUs to leave out"),
    launching("deepspeed_inclusion_filter", Kind::kText,
              "deepspeed_config.deepspeed_inclusion_filter", Effect::kNone,
              "Machines and GPUs to use"),
};

}  // namespace

std::span<const Setting> deepspeed_settings() { return kDeepspeedSettings; }

}  // namespace accelerate::config
