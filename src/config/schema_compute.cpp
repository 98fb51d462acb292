#include <array>

#include "config/schema_tables.h"

namespace accelerate::config {
namespace {

using SV = std::string_view;

constexpr std::array<SV, 3> kFp8Backends = {"ao", "te", "msamp"};
constexpr std::array<SV, 3> kFp8Formats = {"HYBRID", "E4M3", "E5M2"};
constexpr std::array<SV, 2> kAmaxAlgorithms = {"max", "most_recent"};
constexpr std::array<SV, 2> kOptLevels = {"O1", "O2"};
// The misspelling is the reference's: files and scripts have it.
constexpr std::array<SV, 14> kDynamoBackends = {"no",
                                                "eager",
                                                "aot_eager",
                                                "inductor",
                                                "aot_ts_nvfuser",
                                                "nvprims_nvfuser",
                                                "cudagraphs",
                                                "ofi",
                                                "fx2trt",
                                                "onnxrt",
                                                "tensorrt",
                                                "aot_torchxla_trace_once",
                                                "torhchxla_trace_once",
                                                "tvm"};
constexpr std::array<SV, 3> kDynamoModes = {"default", "reduce-overhead", "max-autotune"};

constexpr Setting fp8(SV name, Kind kind, std::optional<SV> preset, SV key, SV variable,
                      Spelling spelling, SV help, std::span<const SV> choices = {}, SV alias = {}) {
  return {.name = name,
          .group = Group::kFp8,
          .kind = kind,
          .help = help,
          .preset = preset,
          .choices = choices,
          .file_key = key,
          .file_alias = alias,
          .variable = variable,
          .passed = Passed::kFp8,
          .spelling = spelling,
          .effect = Effect::kForwarded};
}

constexpr Setting dynamo(SV name, Kind kind, SV preset, SV key, SV variable, Spelling spelling,
                         SV help, std::span<const SV> choices = {}) {
  return {.name = name,
          .group = Group::kDynamo,
          .kind = kind,
          .help = help,
          .preset = preset,
          .choices = choices,
          .file_key = key,
          .file_kind = FileKind::kBoth,
          .variable = variable,
          .passed = Passed::kExceptDeepspeed,
          .spelling = spelling,
          .effect = Effect::kForwarded};
}

constexpr Setting kComputeSettings[] = {
    fp8("fp8_backend", Kind::kChoice, std::nullopt, "fp8_config.fp8_backend",
        "ACCELERATE_FP8_BACKEND", Spelling::kAsIs, "Library that computes in fp8", kFp8Backends),
    fp8("fp8_use_autocast_during_eval", Kind::kSwitch, "false",
        "fp8_config.fp8_use_autocast_during_eval", "ACCELERATE_FP8_USE_AUTOCAST_DURING_EVAL",
        Spelling::kPython, "fp8 in evaluation too"),
    fp8("fp8_margin", Kind::kInt, "0", "fp8_config.fp8_margin", "ACCELERATE_FP8_MARGIN",
        Spelling::kAsIs, "Margin of the scaling factor"),
    fp8("fp8_interval", Kind::kInt, "1", "fp8_config.fp8_interval", "ACCELERATE_FP8_INTERVAL",
        Spelling::kAsIs, "How often the scaling factor is computed"),
    fp8("fp8_format", Kind::kChoice, "HYBRID", "fp8_config.fp8_format", "ACCELERATE_FP8_FORMAT",
        Spelling::kAsIs, "Format of numbers", kFp8Formats),
    fp8("fp8_amax_history_len", Kind::kInt, "1024", "fp8_config.fp8_amax_history_len",
        "ACCELERATE_FP8_AMAX_HISTORY_LEN", Spelling::kAsIs,
        "Length of the history behind the scaling factor, in steps", {}, "fp8_amax_history_length"),
    fp8("fp8_amax_compute_algo", Kind::kChoice, "most_recent", "fp8_config.fp8_amax_compute_algo",
        "ACCELERATE_FP8_AMAX_COMPUTE_ALGO", Spelling::kAsIs,
        "How the scaling factor is computed from that history", kAmaxAlgorithms,
        "fp8_amax_compute_algorithm"),
    fp8("fp8_override_linear_precision", Kind::kList, "false,false,false",
        "fp8_config.fp8_override_linear_precision", "ACCELERATE_FP8_OVERRIDE_LINEAR_PRECISION",
        Spelling::kTypedDigit,
        "fprop, dgrad and wgrad in higher precision: three of true and false"),
    fp8("fp8_opt_level", Kind::kChoice, "O2", "fp8_config.fp8_opt_level",
        "ACCELERATE_FP8_OPT_LEVEL", Spelling::kAsIs, "Level of MS-AMP", kOptLevels,
        "fp8_optimization_level"),
    fp8("fp8_enable_fsdp_float8_all_gather", Kind::kBool, "true",
        "fp8_config.fp8_enable_fsdp_float8_all_gather",
        "ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER", Spelling::kTypedDigit,
        "Gather parameters of FSDP 2 in fp8"),
    fp8("fp8_pad_inner_dim", Kind::kBool, "true", "fp8_config.fp8_pad_inner_dim",
        "ACCELERATE_FP8_PAD_INNER_DIM", Spelling::kTypedDigit,
        "Pad matrices to the sizes that fp8 requires"),

    dynamo("dynamo_backend", Kind::kChoice, "no", "dynamo_config.dynamo_backend",
           "ACCELERATE_DYNAMO_BACKEND", Spelling::kUpper, "Compiler of torch.compile",
           kDynamoBackends),
    dynamo("dynamo_mode", Kind::kChoice, "default", "dynamo_config.dynamo_mode",
           "ACCELERATE_DYNAMO_MODE", Spelling::kAsIs, "Mode of torch.compile", kDynamoModes),
    dynamo("dynamo_use_fullgraph", Kind::kSwitch, "false", "dynamo_config.dynamo_use_fullgraph",
           "ACCELERATE_DYNAMO_USE_FULLGRAPH", Spelling::kPython,
           "Require a single graph, and fail otherwise"),
    dynamo("dynamo_use_dynamic", Kind::kSwitch, "false", "dynamo_config.dynamo_use_dynamic",
           "ACCELERATE_DYNAMO_USE_DYNAMIC", Spelling::kPython, "Dynamic shapes"),
    dynamo("dynamo_use_regional_compilation", Kind::kSwitch, "false",
           "dynamo_config.dynamo_use_regional_compilation",
           "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION", Spelling::kPython,
           "Compile repeated blocks once"),
};

}  // namespace

std::span<const Setting> compute_settings() { return kComputeSettings; }

}  // namespace accelerate::config
