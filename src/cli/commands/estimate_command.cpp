#include "cli/commands/estimate_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "cli/help/help_formatter.h"
#include "cli/help/usage.h"
#include "cli/reports/estimate_report.h"
#include "cli/reports/print_output.h"
#include "cli/reports/system_facts.h"
#include "files/size_text.h"

namespace accelerate::cli {
namespace {

using estimate::BatchShape;
using estimate::EstimateRequest;
using estimate::GpuSet;

constexpr uint64_t kMostRanks = 1'000'000;

constexpr const char* kEstimateFooter =
    R"(MODEL is a .safetensors file, the index of several, a folder with them, the config.json of a model
of type bert, distilbert, gpt2, llama, roberta or t5, or a name in the cache of the Hugging Face
hub. Only the headers of weight files are read. Sizes are binary: 1 GiB is 1024 MiB.

Examples:
  accelerate estimate-memory model.safetensors
  accelerate estimate-memory llama/config.json --batch 1 --sequence 4096
  accelerate estimate-memory llama --gpu_memory 80GiB --gpus 8
  accelerate estimate-memory llama --ranks 8 64 --optimizer adam8bit
)";

struct EstimateOptions {
  std::string model;
  std::vector<std::string> dtypes;
  std::string optimizer = "adam";
  std::vector<uint64_t> ranks;
  uint64_t batch = 0;
  uint64_t sequence = 0;
  std::string attention = "fused";
  std::string gpu_memory;
  uint64_t gpus = 0;
  bool json = false;
  std::string library_name;
  bool trust_remote_code = false;
};

// The names that --mixed_precision has for some types.
std::string spell_out_dtype(std::string& name) {
  if (name == "fp32") name = "float32";
  if (name == "fp16") name = "float16";
  if (name == "bf16") name = "bfloat16";
  return "";
}

template <typename Value>
Value value_named(std::span<const Value> values, const std::string& name) {
  return *std::find_if(values.begin(), values.end(),
                       [&](Value value) { return name == name_of(value); });
}

std::optional<GpuSet> gpus_of(const EstimateOptions& options, const std::vector<uint64_t>& ranks) {
  const std::vector<uint64_t> found = gpu_memories();
  const uint64_t most_ranks = *std::max_element(ranks.begin(), ranks.end());
  if (!options.gpu_memory.empty()) {
    const uint64_t count = options.gpus > 0 ? options.gpus
                           : found.empty()  ? most_ranks
                                            : found.size();
    return GpuSet{count, files::parse_memory_size(options.gpu_memory), "--gpu_memory"};
  }
  if (found.empty()) {
    if (options.gpus == 0) return std::nullopt;
    throw UsageError(
        {.what = "--gpus needs --gpu_memory where no GPU is found", .hint = "--gpu_memory 80GiB"});
  }
  return GpuSet{options.gpus > 0 ? options.gpus : found.size(),
                *std::min_element(found.begin(), found.end()), "nvidia-smi"};
}

EstimateRequest request_of(const EstimateOptions& options) {
  EstimateRequest request;
  if (!options.dtypes.empty()) {
    request.dtypes.clear();
    for (const std::string& name : options.dtypes) {
      request.dtypes.push_back(value_named(estimate::all_dtypes(), name));
    }
  }
  request.optimizer = value_named(estimate::all_optimizers(), options.optimizer);
  if (!options.ranks.empty()) request.ranks = options.ranks;
  if ((options.batch == 0) != (options.sequence == 0)) {
    throw UsageError({.what = "--batch and --sequence must be given together",
                      .hint = "--batch 8 --sequence 512"});
  }
  if (options.batch > 0) {
    request.batch =
        BatchShape{.batch = options.batch,
                   .sequence = options.sequence,
                   .attention = options.attention == "plain" ? estimate::Attention::kPlain
                                                             : estimate::Attention::kFused};
  }
  request.gpus = gpus_of(options, request.ranks);
  return request;
}

// A configuration of a model that cannot be used is no mistake of the call, as one of launch is.
estimate::MemoryEstimate estimate_of(const std::string& model, const EstimateRequest& request) {
  try {
    return estimate::estimate_memory(estimate::find_model(model), request);
  } catch (const ConfigError& error) {
    throw DataError({.what = error.message(), .where = error.where(), .hint = error.hint()});
  }
}

int print_estimate(const EstimateOptions& options) {
  if (!options.library_name.empty() || options.trust_remote_code) {
    std::fprintf(stderr,
                 "accelerate estimate-memory: without effect: --library_name and "
                 "--trust_remote_code, because model code is never run\n");
  }
  const EstimateRequest request = request_of(options);
  const auto result = estimate_of(options.model, request);
  const std::string text =
      options.json ? estimate_json(result, request) : estimate_text(result, request);
  print_output(text);
  return 0;
}

void add_choice(CLI::App& command, const std::string& flag, std::string& value,
                const std::string& help, const std::vector<std::string>& choices) {
  command.add_option(flag, value, help)
      ->type_name(CLI::detail::join(choices, "|"))
      ->check(one_of(flag, choices));
}

CLI::Option* add_size(CLI::App& command, const std::string& flag, uint64_t& value,
                      const std::string& help) {
  return command.add_option(flag, value, help)
      ->type_name("N")
      ->check(CLI::Range(uint64_t{1}, kMostRanks).description(""));
}

}  // namespace

Command setup_estimate(CLI::App& app) {
  auto options = std::make_shared<EstimateOptions>();
  CLI::App* command = add_command(app, "estimate-memory",
                                  "Estimate the memory that a model needs, and what fits where",
                                  "accelerate estimate-memory MODEL [flags]");
  command->footer(kEstimateFooter);
  command->add_option("MODEL", options->model, "File or folder of the model")
      ->type_name("")
      ->required();
  const std::vector<std::string> dtypes{"float32", "float16", "bfloat16", "int8", "int4"};
  command
      ->add_option("--dtypes", options->dtypes,
                   "Data types to show; fp32, fp16 and bf16 are accepted too [all]")
      ->type_name(CLI::detail::join(dtypes, "|"))
      ->expected(1, 5)
      ->delimiter(',')
      ->transform(CLI::Validator(spell_out_dtype, ""))
      ->check(one_of("--dtypes", dtypes));
  add_choice(*command, "--optimizer", options->optimizer, "Optimizer for the table of ranks [adam]",
             {"adam", "sgd", "adam8bit"});
  command->add_option("--ranks", options->ranks, "Numbers of ranks to show [1 2 4 8]")
      ->type_name("N")
      ->expected(1, 16)
      ->delimiter(',')
      ->check(CLI::Range(uint64_t{1}, kMostRanks).description(""));
  add_size(*command, "--batch", options->batch, "Sequences on each rank, for activations");
  add_size(*command, "--sequence", options->sequence, "Tokens of each sequence");
  add_choice(*command, "--attention", options->attention,
             "Whether a score is kept for every pair of tokens [fused]", {"fused", "plain"});
  command
      ->add_option("--gpu_memory", options->gpu_memory,
                   "Memory of a GPU, such as 80GiB [what nvidia-smi says]")
      ->type_name("SIZE");
  add_size(*command, "--gpus", options->gpus, "How many of them [those found]");
  command->add_flag("--json", options->json, "Print JSON, in bytes");
  command->add_option("--library_name", options->library_name, "Without effect here")
      ->type_name("NAME");
  command->add_flag("--trust_remote_code", options->trust_remote_code, "Without effect here");
  return {command, [options] { return print_estimate(*options); }};
}

}  // namespace accelerate::cli
