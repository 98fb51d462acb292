#include "config/schema_tables.h"

namespace accelerate::config {
namespace {

using SV = std::string_view;

constexpr Setting none(SV name, Group group, Kind kind, std::optional<SV> preset, SV key,
                       std::optional<SV> file_preset, SV help) {
  return {.name = name,
          .group = group,
          .kind = kind,
          .help = help,
          .preset = preset,
          .file_key = key,
          .file_preset = file_preset,
          .variable = kNoVariable,
          .effect = Effect::kNone};
}

constexpr Setting secret(SV name, SV help) {
  return {.name = name,
          .group = Group::kCloud,
          .help = help,
          .is_secret = true,
          .variable = kNoVariable,
          .effect = Effect::kNone};
}

constexpr Setting kElsewhereSettings[] = {
    {.name = "tpu",
     .group = Group::kTpu,
     .kind = Kind::kSwitch,
     .help = "Train on TPUs, or on another XLA device",
     .preset = "false",
     .variable = "ACCELERATE_USE_XLA",
     .passed = Passed::kIfTrue,
     .spelling = Spelling::kLower},
    {.name = "tpu_cluster",
     .group = Group::kTpu,
     .kind = Kind::kSwitch,
     .help = "Train on a TPU pod",
     .preset = "false",
     .negative_flag = "no_tpu_cluster",
     .file_key = "tpu_use_cluster",
     .file_preset = "false",
     .variable = kNoVariable,
     .effect = Effect::kNone},
    none("tpu_use_sudo", Group::kTpu, Kind::kSwitch, "false", "tpu_use_sudo", "false",
         "Use sudo in the pod"),
    none("vm", Group::kTpu, Kind::kList, {}, "tpu_vm", {}, "Machines of the pod"),
    none("env", Group::kTpu, Kind::kList, {}, "tpu_env", {}, "Variables of the pod"),
    none("main_training_function", Group::kTpu, Kind::kText, {}, "main_training_function", "main",
         "Function that the workers of a pod call"),
    none("downcast_bf16", Group::kTpu, Kind::kSwitch, "false", "downcast_bf16", "false",
         "float as bfloat16, double as float"),
    secret("aws_access_key_id", "Key of SageMaker jobs"),
    secret("aws_secret_access_key", "Secret of SageMaker jobs"),
};

}  // namespace

std::span<const Setting> elsewhere_settings() { return kElsewhereSettings; }

}  // namespace accelerate::config
