#include <array>

#include "config/schema_tables.h"

namespace accelerate::config {
namespace {

using SV = std::string_view;

constexpr std::array<SV, 2> kEnvironments = {"LOCAL_MACHINE", "AMAZON_SAGEMAKER"};
constexpr std::array<SV, 16> kDistributedTypes = {
    "NO",         "MULTI_CPU",   "MULTI_GPU",     "MULTI_NPU",     "MULTI_MLU", "MULTI_SDAA",
    "MULTI_MUSA", "MULTI_XPU",   "MULTI_HPU",     "MULTI_NEURON",  "DEEPSPEED", "FSDP",
    "XLA",        "MEGATRON_LM", "DATA_PARALLEL", "MODEL_PARALLEL"};

constexpr Setting key(SV name, Kind kind, FileKind file_kind, SV help,
                      std::optional<SV> file_preset = {}) {
  return {.name = name,
          .group = Group::kFileOnly,
          .kind = kind,
          .help = help,
          .has_flag = false,
          .file_key = name,
          .file_preset = file_preset,
          .file_kind = file_kind,
          .variable = kNoVariable,
          .effect = Effect::kNone};
}

constexpr Setting choice(SV name, std::span<const SV> choices, SV help) {
  return {.name = name,
          .group = Group::kFileOnly,
          .kind = Kind::kChoice,
          .help = help,
          .choices = choices,
          .has_flag = false,
          .file_key = name,
          .file_kind = FileKind::kBoth,
          .variable = kNoVariable};
}

constexpr Setting retired(SV name, SV file_key, SV help) {
  return {.name = name,
          .group = Group::kFileOnly,
          .help = help,
          .has_flag = false,
          .file_key = file_key,
          .file_kind = FileKind::kRetired,
          .variable = kNoVariable,
          .effect = Effect::kNone};
}

constexpr Setting kFileOnlySettings[] = {
    choice("compute_environment", kEnvironments, "Where jobs run"),
    choice(
        "distributed_type", kDistributedTypes,
        "How they are distributed; FSDP, DEEPSPEED and MEGATRON_LM switch on what their flags do"),
    key("tpu_name", Kind::kText, FileKind::kCluster, "Name of the TPU pod"),
    key("tpu_zone", Kind::kText, FileKind::kCluster, "Zone of the TPU pod"),
    key("command_file", Kind::kPath, FileKind::kCluster, "Commands to run in the pod, a file"),
    key("commands", Kind::kList, FileKind::kCluster, "Commands to run in the pod"),
    key("ec2_instance_type", Kind::kText, FileKind::kSagemaker, "Machine of a SageMaker job"),
    key("iam_role_name", Kind::kText, FileKind::kSagemaker, "Its role"),
    key("image_uri", Kind::kText, FileKind::kSagemaker, "Its image"),
    key("profile", Kind::kText, FileKind::kSagemaker, "AWS profile"),
    key("region", Kind::kText, FileKind::kSagemaker, "AWS region", "us-east-1"),
    key("base_job_name", Kind::kText, FileKind::kSagemaker, "Beginning of the job's name",
        "accelerate-sagemaker-1"),
    key("pytorch_version", Kind::kText, FileKind::kSagemaker, "Version in the image", "1.10.2"),
    key("transformers_version", Kind::kText, FileKind::kSagemaker, "Version in the image",
        "4.17.0"),
    key("py_version", Kind::kText, FileKind::kSagemaker, "Version in the image", "py38"),
    key("sagemaker_inputs_file", Kind::kPath, FileKind::kSagemaker, "Inputs of the job"),
    key("sagemaker_metrics_file", Kind::kPath, FileKind::kSagemaker, "Metrics of the job"),
    key("additional_args", Kind::kText, FileKind::kSagemaker, "Further arguments of the job"),
    retired("mpirun_ccl", "mpirun_config.mpirun_ccl", "Workers of oneCCL, in files before 1.0"),
    retired("ipex", "ipex_config.ipex", "Intel's extension, in files before 1.9"),
    retired("use_xpu", "ipex_config.use_xpu", "Intel's GPUs, in files before 1.9"),
};

}  // namespace

std::span<const Setting> file_only_settings() { return kFileOnlySettings; }

}  // namespace accelerate::config
