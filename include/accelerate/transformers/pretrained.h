// Loading and saving models in folders with the layout of Hugging Face's transformers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/communicator.h"
#include "accelerate/communicator_pointer.h"
#include "accelerate/export.h"
#include "accelerate/model_files.h"
#include "accelerate/transformers/config.h"
#include "accelerate/transformers/model.h"
#include "accelerate/transformers/registry.h"

namespace accelerate::transformers {

// What loading found; see PretrainedOptions::report.
struct PretrainedReport {
  std::vector<std::string> missing_keys{};     // in the model, not in the files: newly initialised
  std::vector<std::string> unexpected_keys{};  // in the files, not in the model: not used
  std::vector<std::string> mismatched_keys{};  // of another shape: newly initialised, if allowed
  // One readable message for all of it; empty if there is nothing to say.
  std::string message{};
};

struct PretrainedOptions {
  // Of floating-point parameters. Unset: as they are saved.
  std::optional<at::ScalarType> dtype{};
  std::optional<int64_t> num_labels{};
  // Names of the classes; there are as many labels then.
  std::vector<std::string> labels{};
  // Other settings in place of those in config.json.
  std::map<std::string, ConfigValue> config{};
  c10::Device device = c10::kCPU;
  // A head of another size than the one in the files is newly initialised; false: an error.
  bool ignore_mismatched_sizes = false;
  // Rank 0 of it reads the files and sends them to the others, which need not have them. Collective
  // then: all ranks call with the same options and a device of the same kind, UsageError on all if
  // not; an error of one is an error on all. Null: each reads for itself.
  // Reading may take longer than the timeout of its group.
  CommunicatorPointer broadcast{};
  // Of a name on the hub: a branch, a tag or a commit.
  std::string revision = "main";
  // Files of weights may be links that lead out of the folder, as in LoadModelOptions. Snapshots in
  // a cache of the hub are made of such links, which are followed in any case.
  bool follow_links = false;
  // Receives the report. Empty: its message is logged, as a warning, on rank 0.
  std::function<void(const PretrainedReport&)> report{};
};

// The folder of a checkpoint: `name_or_folder` itself if it is a folder, else its snapshot in the
// local cache of the Hugging Face hub (HF_HUB_CACHE, else HF_HOME/hub, else
// ~/.cache/huggingface/hub). Nothing is downloaded. Throws DataError that says where it looked and
// how to get it.
ACCELERATE_EXPORT std::filesystem::path find_pretrained(const std::string& name_or_folder,
                                                        const std::string& revision = "main");

// The model of a checkpoint for a task. Weights go tensor by tensor from the mapped file to their
// place on the device: beside the model there is at most one file in memory. Of safetensors or .bin
// files, one or several with an index. Throws DataError if the folder, its config.json or the
// architecture is not what it should be, CheckpointError for damaged weights or other shapes.
ACCELERATE_EXPORT std::shared_ptr<PretrainedModel> load_pretrained(
    ModelTask task, const std::string& name_or_folder, const PretrainedOptions& options = {});

// A new model with random values.
ACCELERATE_EXPORT std::shared_ptr<PretrainedModel> make_model(ModelTask task,
                                                              const ModelConfig& config);

struct SavePretrainedOptions {
  // Only a process with true writes; the others return immediately.
  bool is_main_process = true;
  ShardSize max_shard_size = "50GB";
  // Called instead of writing a file of weights.
  std::function<void(const NamedTensors&, const std::filesystem::path&)> save_function{};
};

// Writes config.json, generation_config.json for models that generate, and model.safetensors, or
// shards with an index; files of an earlier model are replaced. Not collective. Throws
// CheckpointError if writing fails.
ACCELERATE_EXPORT void save_pretrained(const PretrainedModel& model,
                                       const std::filesystem::path& folder,
                                       const SavePretrainedOptions& options = {});

struct PushOptions {
  std::string branch = "main";
  std::string message = "Upload model";
};

// Commits the folder to the git repository `remote` (an address or a path), files of weights
// through git-lfs, and pushes it. Needs the programs git and git-lfs: UsageError if they are
// missing. Throws CheckpointError with git's message if it fails. Blocks.
ACCELERATE_EXPORT void push_to_hub(const std::filesystem::path& folder, const std::string& remote,
                                   const PushOptions& options = {});

}  // namespace accelerate::transformers
