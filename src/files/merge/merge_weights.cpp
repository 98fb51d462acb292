#include "files/merge/merge_weights.h"

#include <algorithm>
#include <limits>
#include <span>
#include <system_error>

#include "accelerate/errors.h"
#include "files/durable/directory_lock.h"
#include "files/durable/staged_file.h"
#include "files/durable/system_calls.h"
#include "files/manifest/manifest.h"
#include "files/merge/merge_source.h"
#include "files/safetensors/model_folder.h"
#include "files/safetensors/safetensors_header.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void misuse(const fs::path& path, const std::string& what, const std::string& hint) {
  throw UsageError({.what = what, .where = path.string(), .hint = hint});
}

// Absolute, without links, whether it is there or not.
fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path result = fs::weakly_canonical(fs::absolute(path), error);
  if (error) throw system_error("the path cannot be resolved", path, error.value(), Access::kRead);
  return result.has_filename() ? result : result.parent_path();
}

struct Target {
  fs::path folder;
  std::string file{};  // empty: the names of a saved model
};

Target target_of(const fs::path& path, const MergeOptions& options) {
  const fs::path target = resolved(path);
  if (!target.string().ends_with(kSafetensorsFiles.suffix)) return {.folder = target};
  if (options.max_shard_bytes) {
    misuse(path, "a file cannot hold the shards of a model", "name a folder");
  }
  return {.folder = target.parent_path(), .file = target.filename().string()};
}

bool holds_model(const fs::path& folder) {
  const std::vector<std::string> names = entry_names(folder);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return is_model_file(name, kSafetensorsFiles.stem, kSafetensorsFiles.suffix) ||
           is_model_file(name, kArchiveFiles.stem, kArchiveFiles.suffix);
  });
}

// What is beside a single file is not its own: the result may be there if it replaces nothing of
// it.
void check_beside(const Target& target, const fs::path& source) {
  if (target.folder != source.parent_path()) return;
  if (target.file.empty()) {
    misuse(target.folder, "the target is the folder of the source",
           "name a folder in it, or a file that ends in .safetensors");
  }
  if (target.file == source.filename()) {
    misuse(source, "the target is the source", "name another file");
  }
}

void check_apart(const Target& target, const fs::path& folder) {
  const auto [end, rest] =
      std::mismatch(folder.begin(), folder.end(), target.folder.begin(), target.folder.end());
  if (end == folder.end()) {
    misuse(target.folder, "the target is in the folder of the source", "name another folder");
  }
}

void check_target(const Target& target, const MergeSource& source, const MergeOptions& options,
                  const fs::path& source_path) {
  const fs::path named = resolved(source_path);
  const bool is_one_file =
      entry_kind(named) == EntryKind::kFile && named.string().ends_with(kSafetensorsFiles.suffix);
  is_one_file ? check_beside(target, named) : check_apart(target, source.folder());
  if (entry_kind(target.folder) == EntryKind::kFile) {
    misuse(target.folder, "this is a file", "name a folder, or a file that ends in .safetensors");
  }
  if (!leads_to_directory(target.folder)) return;
  if (entry_kind(target.folder / kManifestName) != EntryKind::kMissing) {
    misuse(target.folder, "the target is a state directory, which never changes",
           "name another folder");
  }
  if (options.overwrite) return;
  const bool is_taken = target.file.empty()
                            ? holds_model(target.folder)
                            : entry_kind(target.folder / target.file) != EntryKind::kMissing;
  if (is_taken) {
    misuse(target.folder / target.file, "the target holds a model",
           "set overwrite (--overwrite on the command line) to replace it, or name another folder");
  }
}

void check_removable(const MergeSource& source, const fs::path& path) {
  if (source.kind() == MergeSource::Kind::kState) {
    misuse(path, "the files of a state directory cannot be removed one by one",
           "remove the directory yourself");
  }
  if (source.kind() == MergeSource::Kind::kDeepspeed) {
    misuse(path, "the files of DeepSpeed hold the state of the optimizer too, which is not merged",
           "remove the folder yourself");
  }
}

// One file of the result.
class ShardWriter {
 public:
  explicit ShardWriter(const MergeSource& source) : source_(source) {
    for (const PiecedTensor& tensor : source.tensors()) tensors_.emplace(tensor.name, &tensor);
    for (const auto& [alias, name] : source.aliases()) aliases_[name].push_back(alias);
  }

  void write(const std::vector<std::string>& names, ByteSink& sink) const {
    std::vector<SafetensorsEntry> entries;
    std::map<std::string, std::string> metadata = source_.metadata();
    for (const std::string& name : names) {
      const PiecedTensor& tensor = *tensors_.at(name);
      entries.push_back({.name = name, .dtype = tensor.dtype, .shape = tensor.shape});
      const auto aliases = aliases_.find(name);
      if (aliases == aliases_.end()) continue;
      for (const std::string& alias : aliases->second) metadata[alias] = name;
    }
    const SafetensorsLayout layout = lay_out_safetensors(std::move(entries), metadata);
    sink.write(std::as_bytes(std::span(layout.header)));
    for (const SafetensorsEntry& entry : layout.entries) {
      sink.begin_part(entry.name);
      source_.write(*tensors_.at(entry.name), sink);
    }
  }

 private:
  const MergeSource& source_;
  std::map<std::string, const PiecedTensor*> tensors_;
  std::map<std::string, std::vector<std::string>> aliases_;  // by the name of their tensor
};

ShardPlan plan_of(const MergeSource& source, const MergeOptions& options) {
  std::vector<ShardedTensor> tensors;
  for (const PiecedTensor& tensor : source.tensors()) {
    tensors.push_back(
        {.name = tensor.name, .bytes = tensor_bytes(tensor.dtype, tensor.shape).value_or(0)});
  }
  return plan_shards(tensors,
                     options.max_shard_bytes.value_or(std::numeric_limits<uint64_t>::max()),
                     kSafetensorsFiles.stem, kSafetensorsFiles.suffix);
}

std::string index_of(const ShardPlan& plan) {
  ShardIndex index{.total_size = plan.total_size};
  for (const Shard& shard : plan.shards) {
    for (const std::string& name : shard.tensors) index.weight_map.emplace(name, shard.file);
  }
  return shard_index_text(index);
}

void remove_files(const std::vector<fs::path>& paths) {
  for (const fs::path& path : paths) {
    std::error_code error;
    fs::remove(path, error);
    if (error) throw system_error("a file of the source cannot be removed", path, error.value());
    sync_directory(path.has_parent_path() ? path.parent_path() : ".");
  }
}

}  // namespace

MergeReport merge_safetensors(const fs::path& source_path, const fs::path& target_path,
                              const MergeOptions& options) {
  const Target target = target_of(target_path, options);
  const MergeSource source(source_path,
                           {.links = options.links,
                            .deepspeed_tag = options.deepspeed_tag,
                            .exclude_frozen_parameters = options.exclude_frozen_parameters});
  check_target(target, source, options, source_path);
  if (options.remove_source) check_removable(source, source_path);
  ShardPlan plan = plan_of(source, options);
  if (!target.file.empty()) plan.shards.front().file = target.file;

  make_directories(target.folder);
  const DirectoryLock lock(target.folder / ".save_model.lock");
  if (lock.is_exclusive()) remove_partial_files(target.folder);
  const ShardWriter writer(source);
  std::vector<StagedFile> staged;
  for (const Shard& shard : plan.shards) {
    StagedFile& file = staged.emplace_back(target.folder / shard.file, kPartialStem);
    writer.write(shard.tensors, file.sink());
    file.close();
  }
  if (plan.is_sharded()) {
    const std::string text = index_of(plan);
    StagedFile& file = staged.emplace_back(target.folder / kSafetensorsFiles.index(), kPartialStem);
    file.sink().write(std::as_bytes(std::span(text)));
    file.close();
  }
  MergeReport report{.path = staged.back().path(),
                     .tensors = source.tensors().size(),
                     .bytes = plan.total_size,
                     .files = plan.shards.size(),
                     .differing_metadata = source.differing_metadata(),
                     .left_out = source.left_out()};
  if (plan.too_large) {
    report.too_large = plan.too_large->name;
    report.too_large_bytes = plan.too_large->bytes;
    report.too_large_tensors = plan.too_large_tensors;
  }
  if (target.file.empty()) {
    publish_model_files(target.folder, staged);
  } else {
    // Other models in the folder are no business of a file with a name of its own.
    staged.back().publish();
    sync_directory(target.folder);
  }
  if (options.remove_source) remove_files(source.paths());
  return report;
}

}  // namespace accelerate::files
