#include "cli/commands/merge_command.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "accelerate/errors.h"
#include "base/printable_text.h"
#include "cli/help/help_formatter.h"
#include "cli/help/usage.h"
#include "cli/reports/text_table.h"
#include "files/merge/merge_weights.h"
#include "files/size_text.h"

namespace accelerate::cli {
namespace {

constexpr const char* kMergeFooter =
    R"(SOURCE is a .safetensors file, the index of several, or a folder with them, including one that
save_state wrote. It may also be what a sharded run of Python has left: a folder of
torch.distributed.checkpoint (.metadata and .distcp files; those of FSDP are pytorch_model_fsdp_0
and, for the state of an optimizer, optimizer_0), or a folder in which DeepSpeed has saved (ZeRO
stages 1 to 3), whose float32 weights are taken as zero_to_fp32.py does.

TARGET is a folder, or a file that ends in .safetensors. Tensors are copied byte for byte (buffers
of DeepSpeed become float32), a few megabytes at a time; the target is written completely or not at
all. It must not be inside a source folder, but may be next to a single source file.

Examples:
  accelerate merge-weights runs/a/model merged
  accelerate merge-weights runs/a/checkpoints/checkpoint_7 model.safetensors
  accelerate merge-weights python_run/checkpoint_0/pytorch_model_fsdp_0 merged
  accelerate merge-weights deepspeed_run merged --tag global_step500
  accelerate merge-weights whole/model.safetensors shards --max_shard_size 2GB
)";

struct MergeFlags {
  std::string source;
  std::string target;
  std::string max_shard_size;
  std::string tag;
  bool exclude_frozen_parameters = false;
  bool overwrite = false;
  bool follow_links = false;
  bool remove_checkpoint_dir = false;
  bool unsafe_serialization = false;
};

int run_merge(const MergeFlags& options) {
  if (options.unsafe_serialization) {
    throw UsageError({.what = "only safetensors files can be written, not pickles",
                      .where = "--unsafe_serialization",
                      .hint = "leave the flag out; torch and transformers read safetensors too"});
  }
  require_something_at(options.source, "name a .safetensors file, an index, or a folder with them");
  files::MergeOptions merge{
      .overwrite = options.overwrite,
      .remove_source = options.remove_checkpoint_dir,
      .links = options.follow_links ? files::Links::kFollowed : files::Links::kInside,
      .deepspeed_tag = options.tag,
      .exclude_frozen_parameters = options.exclude_frozen_parameters};
  if (!options.max_shard_size.empty()) {
    merge.max_shard_bytes = files::parse_shard_size(options.max_shard_size);
  }
  const files::MergeReport report = files::merge_safetensors(options.source, options.target, merge);
  for (const std::string& key : report.differing_metadata) {
    std::fprintf(stderr,
                 "accelerate merge-weights: the files differ in the metadata '%s', which is left "
                 "out\n",
                 printable_text(key).c_str());
  }
  if (!report.left_out.empty()) {
    const size_t count = report.left_out.size() - 1;
    std::fprintf(stderr, "accelerate merge-weights: '%s'%s not a tensor and left out\n",
                 printable_text(report.left_out.front()).c_str(),
                 count == 0 ? " is" : (" and " + std::to_string(count) + " more are").c_str());
  }
  if (!report.too_large.empty()) {
    const size_t count = report.too_large_tensors - 1;
    const std::string others = count == 0 ? ""
                                          : ", as are those of " + std::to_string(count) +
                                                " smaller tensor" + (count == 1 ? "" : "s");
    std::fprintf(
        stderr,
        "accelerate merge-weights: '%s' has %s, more than --max_shard_size %s: its file is "
        "larger%s\n",
        printable_text(report.too_large).c_str(), size_text(report.too_large_bytes).c_str(),
        options.max_shard_size.c_str(), others.c_str());
  }
  std::printf("%llu tensor%s, %s, in %llu file%s: %s\n",
              static_cast<unsigned long long>(report.tensors), report.tensors == 1 ? "" : "s",
              size_text(report.bytes).c_str(), static_cast<unsigned long long>(report.files),
              report.files == 1 ? "" : "s", report.path.c_str());
  return 0;
}

}  // namespace

Command setup_merge(CLI::App& app) {
  auto options = std::make_shared<MergeFlags>();
  CLI::App* command =
      add_command(app, "merge-weights", "Merge the weights of a model into one file",
                  "accelerate merge-weights SOURCE TARGET [flags]");
  command->footer(kMergeFooter);
  command->add_option("SOURCE", options->source, "Weights to merge")->type_name("")->required();
  command->add_option("TARGET", options->target, "Where the result goes")
      ->type_name("")
      ->required();
  command
      ->add_option("--max_shard_size", options->max_shard_size,
                   "Write files of at most this size, such as 2GB or 2GiB [one file]")
      ->type_name("SIZE");
  command
      ->add_option("--tag,-t", options->tag,
                   "Of DeepSpeed: the checkpoint to read [the one that the file latest names]")
      ->type_name("TAG");
  command->add_flag("--exclude_frozen_parameters", options->exclude_frozen_parameters,
                    "Of DeepSpeed: leave out parameters that were not trained");
  command->add_flag("--overwrite", options->overwrite, "Replace a model that is in the target");
  command->add_flag("--follow_links", options->follow_links,
                    "Follow links to files, as in the cache of the Hugging Face hub");
  command->add_flag("--remove_checkpoint_dir", options->remove_checkpoint_dir,
                    "Remove the merged files once the new ones are safely written");
  command->add_flag("--unsafe_serialization", options->unsafe_serialization,
                    "Refused: pickles cannot be written");
  return {command, [options] { return run_merge(*options); }};
}

}  // namespace accelerate::cli
