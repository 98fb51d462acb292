#include <torch/nn/module.h>

#include <algorithm>
#include <span>
#include <system_error>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "accelerate/model_files.h"
#include "accelerate/torch_archive.h"
#include "checkpoint/archive/torch_archive_writer.h"
#include "checkpoint/model/file_format.h"
#include "checkpoint/model/safetensors_stream.h"
#include "checkpoint/model/save_tensors.h"
#include "checkpoint/model/shared_tensors.h"
#include "files/durable/directory_lock.h"
#include "files/durable/staged_file.h"
#include "files/durable/system_calls.h"
#include "files/safetensors/model_folder.h"
#include "files/safetensors/shard_index.h"

namespace accelerate {
namespace {

namespace fs = std::filesystem;
using files::kArchiveFiles;
using files::kSafetensorsFiles;

const SafetensorsMetadata kWrittenByTorch{{"format", "pt"}};

// The tensors of a state, each with a number for those that are the same one.
std::vector<files::ShardedTensor> tensors_to_spread(const ModelStateDict& state,
                                                    const checkpoint::DistinctTensors& distinct) {
  std::map<std::string_view, uint64_t> storages;
  for (const auto& item : distinct.kept) storages.emplace(item.key(), storages.size());
  std::vector<files::ShardedTensor> tensors;
  for (const auto& item : state) {
    const auto alias = distinct.aliases.find(item.key());
    const std::string& first = alias == distinct.aliases.end() ? item.key() : alias->second;
    tensors.push_back(
        {.name = item.key(),
         .bytes = static_cast<uint64_t>(item.value().numel()) * item.value().element_size(),
         .storage = storages.at(first)});
  }
  return tensors;
}

TorchValue archive_value(const NamedTensors& tensors) {
  TorchDict dict(TorchDict::Kind::kOrderedDict);
  for (const auto& item : tensors) dict.add(item.key(), item.value().detach());
  return dict;
}

// How a model is spread over its files.
struct SavePlan {
  SavePlan(const ModelStateDict& state, const SaveModelOptions& options)
      : names(options.safe_serialization ? kSafetensorsFiles : kArchiveFiles),
        distinct(checkpoint::drop_aliases(state)),
        shards(files::plan_shards(tensors_to_spread(state, distinct),
                                  options.max_shard_size.bytes(), names.stem, names.suffix)) {}

  files::ModelFileNames names;
  checkpoint::DistinctTensors distinct;
  files::ShardPlan shards;
};

NamedTensors tensors_of(const files::Shard& shard, const ModelStateDict& state) {
  NamedTensors tensors;
  for (const std::string& name : shard.tensors) tensors.insert(name, state[name]);
  return tensors;
}

void write_shard(files::ByteSink& sink, const files::Shard& shard, const ModelStateDict& state,
                 const SavePlan& plan, bool safe_serialization,
                 const checkpoint::TensorValue& value_of) {
  NamedTensors tensors = tensors_of(shard, state);
  if (safe_serialization) {
    checkpoint::write_safetensors(sink, tensors, kWrittenByTorch, value_of);
    return;
  }
  for (auto& item : tensors) {
    if (!value_of) break;
    const auto alias = plan.distinct.aliases.find(item.key());
    item.value() =
        alias == plan.distinct.aliases.end() ? value_of(item.key()) : tensors[alias->second];
  }
  write_torch_archive(sink, archive_value(tensors), fs::path(shard.file).stem().string());
}

std::string index_text(const files::ShardPlan& plan, const checkpoint::DistinctTensors& distinct,
                       bool safe_serialization) {
  files::ShardIndex index{.total_size = plan.total_size};
  for (const files::Shard& shard : plan.shards) {
    for (const std::string& name : shard.tensors) {
      // A safetensors file has an alias in its metadata, not among its tensors.
      if (safe_serialization && distinct.aliases.contains(name)) continue;
      index.weight_map.emplace(name, shard.file);
    }
  }
  return files::shard_index_text(index);
}

void check_saveable(const ModelStateDict& state) {
  for (const auto& item : state) {
    if (!item.value().is_meta()) continue;
    throw UsageError(
        {.what = "the model cannot be saved: " + item.key() + " is a meta tensor, it has no values",
         .hint = "load the model first"});
  }
}

}  // namespace

namespace checkpoint {

std::vector<std::string> saving_order(const ModelStateDict& state,
                                      const SaveModelOptions& options) {
  const SavePlan plan(state, options);
  std::vector<std::string> order;
  for (const files::Shard& shard : plan.shards.shards) {
    const std::vector<std::string> names =
        options.safe_serialization ? safetensors_order(tensors_of(shard, state), kWrittenByTorch)
                                   : shard.tensors;
    for (const std::string& name : names) {
      const bool is_alias = !options.safe_serialization && plan.distinct.aliases.contains(name);
      if (!is_alias) order.push_back(name);
    }
  }
  return order;
}

void save_tensors(const ModelStateDict& state, const fs::path& folder,
                  const SaveModelOptions& options, const TensorValue& value_of) {
  check_saveable(state);
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    throw UsageError({.what = "a model is saved into a folder, but this is a file",
                      .where = folder.string(),
                      .hint = "name a folder; it is created if it does not exist"});
  }
  const fs::path target = fs::absolute(folder);
  files::make_directories(target);
  const files::DirectoryLock lock(target / ".save_model.lock");
  if (lock.is_exclusive()) files::remove_partial_files(target);

  const SavePlan whole_plan(state, options);
  const files::ShardPlan& plan = whole_plan.shards;
  if (plan.too_large) {
    log(LogLevel::kWarning,
        "the tensor " + plan.too_large->name + " has " + std::to_string(plan.too_large->bytes) +
            " bytes, more than max_shard_size (" + std::to_string(options.max_shard_size.bytes()) +
            "): its file is larger" +
            (plan.too_large_tensors == 1
                 ? ""
                 : ", as are those of " + std::to_string(plan.too_large_tensors - 1) +
                       " smaller tensor" + (plan.too_large_tensors == 2 ? "" : "s")));
  }

  std::vector<files::StagedFile> staged;
  for (const files::Shard& shard : plan.shards) {
    files::StagedFile& file = staged.emplace_back(target / shard.file, files::kPartialStem);
    write_shard(file.sink(), shard, state, whole_plan, options.safe_serialization, value_of);
    file.close();
  }
  if (plan.is_sharded()) {
    const std::string text = index_text(plan, whole_plan.distinct, options.safe_serialization);
    files::StagedFile& file =
        staged.emplace_back(target / whole_plan.names.index(), files::kPartialStem);
    file.sink().write(std::as_bytes(std::span(text)));
    file.close();
  }
  files::publish_model_files(target, staged);
}

}  // namespace checkpoint

void save_model(const torch::nn::Module& module, const fs::path& folder,
                const SaveModelOptions& options) {
  checkpoint::save_tensors(get_state_dict(module), folder, options);
}

void save(const TorchValue& value, const fs::path& path) {
  checkpoint::require_archive_name(path);
  save_torch_archive(path, value);
}

void save(const NamedTensors& tensors, const fs::path& path, const SaveFileOptions& options) {
  if (checkpoint::writes_safetensors(path, options)) {
    save_safetensors(path, tensors, kWrittenByTorch);
  } else {
    save_torch_archive(path, archive_value(tensors));
  }
}

}  // namespace accelerate
