// What this build can run: the only place that says it. The wizard, `launch`, `test`,
// `estimate-memory` and the constructor of Accelerator all ask here. Whoever adds one of these
// flips its row.
//
// Standard headers only, and nothing to link: the library asks without knowing configuration files.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace accelerate::config {

class Settings;
struct Setting;
enum class Group;

enum class Capability {
  kFsdp,
  kDeepspeed,
  kMegatron,
  kMesh,
  kTpu,
  kFp8,
  kOtherDevices,
  kSagemaker,
  // Of sharded training: what its settings ask for is checked by requested_sharding().
  kOffload,
  kRecomputation,
};

struct CapabilityRow {
  Capability capability{};
  bool is_in_this_build = false;
  std::string_view name{};  // as messages call it; "": the setting and its value
  // The setting that asks for it: by one of `values`, or by being switched on where there are none.
  // "": only the variable does.
  std::string_view setting{};
  std::span<const std::string_view> values{};
  // The variable that asks a process for it, in the same way but in any case; "": none does.
  std::string_view variable{};
  // Workers that run Python are told of it and do it themselves.
  bool is_left_to_python = true;
  std::string_view hint{};  // what to do instead
};

inline constexpr std::array<std::string_view, 1> kFp8Value = {"fp8"};
inline constexpr std::array<std::string_view, 7> kOtherDeviceTypes = {
    "MULTI_NPU", "MULTI_MLU", "MULTI_SDAA", "MULTI_MUSA", "MULTI_XPU", "MULTI_HPU", "MULTI_NEURON"};

// Only SageMaker knows what these mean; elsewhere the Python library runs plain processes.
inline constexpr std::array<std::string_view, 2> kParallelTypes = {"DATA_PARALLEL",
                                                                   "MODEL_PARALLEL"};

// A build with the one torch that torch_xla fits.
#ifdef ACCELERATE_HAS_XLA
inline constexpr bool kHasXla = true;
#else
inline constexpr bool kHasXla = false;
#endif

inline constexpr std::array<std::string_view, 1> kTpuValue = {"tpu"};
inline constexpr std::array<std::string_view, 2> kSagemakerTypes = {"data_parallel",
                                                                    "model_parallel"};

// ACCELERATE_DOWNCAST_BF16, XLA_USE_BF16 and XLA_DOWNCAST_BF16 only say how an XLA device computes,
// and USE_TORCH_XLA whether one that is there may be used: they ask for nothing.
inline constexpr CapabilityRow kTpuRow = {.capability = Capability::kTpu,
                                          .is_in_this_build = kHasXla,
                                          .name = "training on TPUs",
                                          .setting = "tpu",
                                          .variable = "ACCELERATE_USE_XLA",
                                          .is_left_to_python = false,
                                          .hint = "--cpu, or a machine with NVIDIA GPUs"};

// What `row` is about, asked for by another variable alone.
constexpr CapabilityRow asked_by_variable(CapabilityRow row, std::string_view variable,
                                          std::span<const std::string_view> values = {}) {
  row.setting = {};
  row.values = values;
  row.variable = variable;
  row.hint = "unset it, to train on CPUs or NVIDIA GPUs";
  return row;
}

inline constexpr std::array<CapabilityRow, 15> kCapabilities = {{
    {.capability = Capability::kFsdp,
     .is_in_this_build = true,
     .name = "FSDP",
     .setting = "use_fsdp",
     .variable = "ACCELERATE_USE_FSDP",
     .hint = "leave it out: every process then holds the whole model (DDP)"},
    {.capability = Capability::kDeepspeed,
     .is_in_this_build = true,
     .name = "DeepSpeed",
     .setting = "use_deepspeed",
     .variable = "ACCELERATE_USE_DEEPSPEED",
     .hint = "leave it out: every process then holds the whole model (DDP)"},
    {.capability = Capability::kMegatron,
     .is_in_this_build = false,
     .name = "Megatron-LM",
     .setting = "use_megatron_lm",
     .variable = "ACCELERATE_USE_MEGATRON_LM",
     .hint = "leave it out: every process then holds the whole model (DDP)"},
    {.capability = Capability::kMesh,
     .is_in_this_build = false,
     .name = "a mesh of tensor, context or sequence parallel ranks",
     .setting = "use_parallelism_config",
     .variable = "ACCELERATE_USE_PARALLELISM_CONFIG",
     .hint = "leave it out: every process then holds the whole model (DDP)"},
    kTpuRow,
    asked_by_variable(kTpuRow, "ACCELERATE_IN_TPU_POD"),
    asked_by_variable(kTpuRow, "PJRT_DEVICE", kTpuValue),
    asked_by_variable(kTpuRow, "ACCELERATE_USE_TPU"),
    asked_by_variable(kTpuRow, "ACCELERATE_TPU"),
    {.capability = Capability::kFp8,
     .is_in_this_build = false,
     .name = "fp8",
     .setting = "mixed_precision",
     .values = kFp8Value,
     .variable = "ACCELERATE_MIXED_PRECISION",
     .hint = "bf16, which every device can do"},
    {.capability = Capability::kOtherDevices,
     .is_in_this_build = false,
     .setting = "distributed_type",
     .values = kOtherDeviceTypes,
     .hint = "MULTI_GPU for NVIDIA GPUs, MULTI_CPU for processes on CPUs"},
    {.capability = Capability::kSagemaker,
     .is_in_this_build = false,
     .setting = "distributed_type",
     .values = kParallelTypes,
     .hint = "MULTI_GPU or MULTI_CPU, where every process holds the whole model (DDP)"},
    {.capability = Capability::kSagemaker,
     .is_in_this_build = false,
     .name = "the data and model parallelism of SageMaker",
     .values = kSagemakerTypes,
     .variable = "ACCELERATE_SAGEMAKER_DISTRIBUTED_TYPE",
     .hint = "unset it, and start the processes with accelerate launch (DDP)"},
    {.capability = Capability::kOffload,
     .is_in_this_build = false,
     .name = "optimizer state and parameters in host memory or files"},
    {.capability = Capability::kRecomputation,
     .is_in_this_build = false,
     .name = "activations that are computed again"},
}};

constexpr bool is_in_this_build(Capability capability,
                                std::span<const CapabilityRow> rows = kCapabilities) {
  for (const CapabilityRow& row : rows) {
    if (row.capability == capability) return row.is_in_this_build;
  }
  return false;
}

// What a distributed_type of a file is for; nothing for those that every build has.
std::optional<Capability> capability_of_type(std::string_view distributed_type);
// What the settings of a group are for; nothing for those that every build has.
std::optional<Capability> capability_of(Group group);

// The row that says why this build lacks what `setting` is for, or its value `text`; nullptr if
// nothing is missing.
const CapabilityRow* missing_for(const Setting& setting, std::string_view text = "",
                                 std::span<const CapabilityRow> rows = kCapabilities);
const CapabilityRow* missing_for(Group group, std::span<const CapabilityRow> rows = kCapabilities);

// Whether a run in which workers run Python refuses less.
enum class WorkerKind { kNative, kPython };

// The first row that `settings` ask for and that workers of that kind cannot have; nullptr if there
// is none.
const CapabilityRow* missing_capability(const Settings& settings, WorkerKind workers,
                                        std::span<const CapabilityRow> rows = kCapabilities);

// "FSDP is not part of this build": what is said of a row that `settings` ask for.
std::string refusal_of(const CapabilityRow& row, const Settings& settings);

// Throws ConfigError that names the flag, the variable or the line of the file that asks for what
// workers of that kind cannot have. To be called where workers would start: settings that ask for
// it can be read, explained, planned and converted.
void refuse_missing_capability(const Settings& settings, WorkerKind workers,
                               std::span<const CapabilityRow> rows = kCapabilities);

// A variable of a process; nothing where it is not set.
using VariableLookup = std::function<std::optional<std::string>(const char* name)>;

// Throws ConfigError that names the variable of this process that asks workers of that kind, who
// inherit it, for what they cannot have. Variables of settings count among the settings, where a
// flag may overrule them.
void refuse_inherited_variables(const VariableLookup& lookup, const Settings& settings,
                                WorkerKind workers,
                                std::span<const CapabilityRow> rows = kCapabilities);

}  // namespace accelerate::config
