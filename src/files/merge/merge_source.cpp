#include "files/merge/merge_source.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/dcp/dcp_folder.h"
#include "files/deepspeed/zero_files.h"
#include "files/deepspeed/zero_model.h"
#include "files/durable/system_calls.h"
#include "files/manifest/checkpoint_directory.h"
#include "files/manifest/checkpoint_names.h"
#include "files/manifest/manifest_file.h"
#include "files/manifest/verification.h"
#include "files/safetensors/mapped_checkpoint.h"
#include "files/safetensors/safetensors_header.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSafetensorsSuffix = ".safetensors";
constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexSuffix = ".index.json";

[[noreturn]] void refuse_source(const fs::path& path, const std::string& what,
                                const std::string& hint) {
  throw CheckpointError({.what = what, .where = path.string(), .hint = hint});
}

[[noreturn]] void refuse_archive(const fs::path& path) {
  refuse_source(path, "the model is in archives of torch.save(), which cannot be merged",
                "load it, and save it with save_model()");
}

fs::path folder_or_here(const fs::path& file) {
  return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

std::vector<uint64_t> sizes_of(const std::vector<int64_t>& shape) {
  return {shape.begin(), shape.end()};
}

}  // namespace

// Fills a source.
class MergeSource::Reader {
 public:
  Reader(MergeSource& source, const MergeSourceOptions& options)
      : source_(source), model_(source.model_), options_(options), links_(options.links) {}

  void read(const fs::path& path) {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      if (read_foreign(path)) return;
      require_no_options(path);
      read_folder(path);
    } else if (!fs::exists(path, error)) {
      refuse_source(path, "there is no such model", "check the path");
    } else if (path.extension() == ".json") {
      read_index(path);
    } else {
      read_file(path);
    }
    require_no_options(path);
    model_.folder = fs::canonical(model_.folder);
    finish();
  }

 private:
  // Whether the folder is read as one of the formats that Python has for sharded runs.
  bool read_foreign(const fs::path& folder) {
    if (options_.deepspeed_tag.empty() && holds_own_model(folder)) return false;
    if (options_.deepspeed_tag.empty() && !holds_foreign_shards(folder)) return false;
    const fs::path of_state = folder / dcp_model_folder(0);
    const bool is_distributed = is_dcp_folder(folder) || is_dcp_folder(of_state);
    if (is_distributed && options_.deepspeed_tag.empty()) {
      require_no_options(folder);
      source_.kind_ = Kind::kDistributed;
      model_ = read_dcp_folder(is_dcp_folder(folder) ? folder : of_state, links_).model;
      return true;
    }
    source_.kind_ = Kind::kDeepspeed;
    model_ = read_deepspeed_folder(folder,
                                   {.tag = options_.deepspeed_tag,
                                    .exclude_frozen_parameters = options_.exclude_frozen_parameters,
                                    .links = links_});
    return true;
  }

  static bool holds_own_model(const fs::path& folder) {
    if (entry_kind(folder / kManifestName) != EntryKind::kMissing) return true;
    const std::vector<std::string> names = entry_names(folder);
    return std::ranges::any_of(names, [](const std::string& name) {
      return name == kSingleFile || name.ends_with(kIndexSuffix);
    });
  }

  void require_no_options(const fs::path& path) const {
    if (!options_.exclude_frozen_parameters) return;
    throw UsageError({.what = "only a checkpoint of DeepSpeed says which parameters are frozen",
                      .where = path.string(),
                      .hint = "leave out exclude_frozen_parameters, or name the tag of a "
                              "checkpoint of DeepSpeed"});
  }

  void read_folder(const fs::path& folder) {
    if (entry_kind(folder / kManifestName) != EntryKind::kMissing) return read_state(folder);
    std::error_code error;
    const std::string single(kSingleFile);
    if (fs::is_regular_file(folder / single, error)) {
      check_model_file(folder, single, folder, links_);
      return read_file(folder / single);
    }
    std::vector<std::string> indices = entry_names(folder);
    std::erase_if(indices, [](const std::string& name) { return !name.ends_with(kIndexSuffix); });
    if (indices.size() == 1) {
      check_model_file(folder, indices.front(), folder, links_);
      return read_index(folder / indices.front());
    }
    if (fs::exists(folder / "pytorch_model.bin", error)) refuse_archive(folder);
    refuse_source(folder,
                  indices.empty()
                      ? "the folder holds no model: no " + single + " and no *.index.json"
                      : "the folder holds more than one index",
                  "name the file or the index");
  }

  void read_file(const fs::path& path) {
    model_.folder = folder_or_here(path);
    add_file(path);
    add_tensors();
  }

  void read_index(const fs::path& path) {
    model_.folder = folder_or_here(path);
    model_.paths.push_back(path);
    const ShardIndex index = read_shard_index(path, links_);
    std::set<std::string> names;
    for (const auto& [tensor, file] : index.weight_map) names.insert(file);
    std::map<std::string, size_t> numbers;
    for (const std::string& name : names) {
      numbers.emplace(name, numbers.size());
      add_file(model_.folder / name);
    }
    for (const auto& [tensor, file] : index.weight_map) {
      placed_.emplace(tensor, numbers.at(file));
    }
    add_tensors();
  }

  void read_state(const fs::path& folder) {
    const CheckpointDirectory state(folder);
    source_.kind_ = Kind::kState;
    model_.folder = state.path();
    Manifest model;
    for (const FileRecord& file : state.manifest().files) {
      if (file.name.ends_with(kSafetensorsSuffix) &&
          is_model_file(file.name, "model", kSafetensorsSuffix)) {
        model.files.push_back(file);
      }
    }
    if (model.files.empty() && state.find("pytorch_model.bin") == nullptr) {
      for (const FileRecord& file : state.manifest().files) {
        if (is_model_pieces_file(file.name)) model.files.push_back(file);
      }
      are_pieces_ = !model.files.empty();
      if (are_pieces_) require_pieces_of_all_ranks(state);
    }
    if (model.files.empty()) {
      if (state.find("pytorch_model.bin") != nullptr) refuse_archive(folder);
      refuse_source(folder, "the state holds no model.safetensors", "name the folder of a model");
    }
    const auto findings = verify_files(open_directory(state.path()), state.path(), model, {});
    if (!findings.empty()) {
      refuse_source(state.path() / findings.front().file,
                    "the state is damaged: " + findings.front().text(), "use another checkpoint");
    }
    for (const FileRecord& file : model.files) {
      for (const PartRecord& part : file.parts) {
        if (are_pieces_ && !piece_of_first_model(part.name)) continue;
        if (part.shard) shards_.emplace(std::pair(headers_.size(), part.name), *part.shard);
      }
      add_file(state.file(file.name));
    }
    add_tensors();
  }

  // Nodes that save for themselves have those of their own ranks alone.
  void require_pieces_of_all_ranks(const CheckpointDirectory& state) const {
    for (int rank = 0; rank < state.manifest().world_size; ++rank) {
      const std::string name = model_pieces_file(rank);
      if (state.find(name) != nullptr) continue;
      refuse_source(state.path(), "the model is in pieces, and " + name + " is not here",
                    "load_state() it with all its nodes, and save_model()");
    }
  }

  void add_file(const fs::path& path) {
    if (!path.string().ends_with(kSafetensorsSuffix)) refuse_archive(path);
    const auto mapped = map_checkpoint_file(path, "the safetensors file");
    headers_.push_back(parse_safetensors_header(mapped->bytes(), path.string()));
    aliases_.push_back(aliases_of(headers_.back()));
    if (are_pieces_) name_aliases(aliases_.back());
    model_.mappings.push_back(mapped);
    model_.paths.push_back(path);
  }

  void add_tensors() {
    check_placed();
    for (size_t file = 0; file < headers_.size(); ++file) {
      for (const SafetensorsEntry& entry : headers_[file].entries) {
        if (are_pieces_) {
          if (const auto tensor = piece_of_first_model(entry.name)) add_entry(entry, *tensor, file);
          continue;
        }
        const auto placed = placed_.find(entry.name);
        // Another file has the one that counts.
        if (placed == placed_.end() || placed->second == file) add_entry(entry, entry.name, file);
      }
    }
  }

  void check_placed() const {
    for (const auto& [name, file] : placed_) {
      if (find_entry(headers_[file], name) || aliases_[file].contains(name)) continue;
      refuse_source(
          model_.mappings[file]->path(),
          "the index places tensor " + in_quotes(name) + " in this file, but it is not there",
          "the files are of different models: save or download it again");
    }
  }

  // The tensor of model 0 that a piece of that name belongs to.
  static std::optional<std::string> piece_of_first_model(std::string_view piece) {
    auto parsed = model_piece_name(piece);
    if (!parsed || parsed->model != 0) return std::nullopt;
    return std::move(parsed->tensor);
  }

  // From names of pieces to those of tensors.
  static void name_aliases(std::map<std::string, std::string>& aliases) {
    std::map<std::string, std::string> of_tensors;
    for (const auto& [alias, name] : aliases) {
      auto other = piece_of_first_model(alias);
      auto first = piece_of_first_model(name);
      if (other && first) of_tensors.emplace(std::move(*other), std::move(*first));
    }
    aliases = std::move(of_tensors);
  }

  void add_entry(const SafetensorsEntry& entry, const std::string& name, size_t file) {
    const fs::path& path = model_.mappings[file]->path();
    TensorPiece piece{.file = file,
                      .offset = headers_[file].data_begin + entry.begin,
                      .shape = entry.shape,
                      .start = std::vector<uint64_t>(entry.shape.size())};
    PiecedTensor tensor{.name = name, .dtype = entry.dtype, .shape = entry.shape};
    const auto shard = shards_.find(std::pair(file, entry.name));
    if (shard != shards_.end()) {
      tensor.shape = sizes_of(shard->second.global_shape);
      piece.start = sizes_of(shard->second.start);
      if (piece.start.size() != piece.shape.size() || !tensor_bytes(tensor.dtype, tensor.shape)) {
        refuse_source(path, "the manifest has another shape for tensor " + in_quotes(entry.name),
                      "use another checkpoint");
      }
    }
    const auto [place, is_new] = positions_.emplace(name, model_.tensors.size());
    if (is_new) model_.tensors.push_back(tensor);
    PiecedTensor& whole = model_.tensors[place->second];
    if (!is_new && shard == shards_.end()) {
      refuse_source(path, "tensor " + in_quotes(entry.name) + " is in another file too",
                    "remove one of them from the index");
    }
    if (whole.dtype != tensor.dtype || whole.shape != tensor.shape) {
      refuse_source(path, "the pieces of tensor " + in_quotes(name) + " are of different tensors",
                    "use another checkpoint");
    }
    // Several ranks may keep the same.
    const auto is_same = [&](const TensorPiece& other) {
      return other.start == piece.start && other.shape == piece.shape;
    };
    if (are_pieces_ && std::any_of(whole.pieces.begin(), whole.pieces.end(), is_same)) return;
    whole.pieces.push_back(std::move(piece));
  }

  void finish() {
    require_whole_tensors(model_);
    for (size_t file = 0; file < headers_.size(); ++file) {
      for (const auto& [alias, name] : aliases_[file]) {
        if (!positions_.contains(alias)) model_.aliases.emplace(alias, name);
      }
      for (const auto& [key, value] : headers_[file].metadata) {
        if (aliases_[file].contains(key) || (are_pieces_ && model_piece_name(key))) continue;
        const auto [other, is_new] = model_.metadata.emplace(key, value);
        if (!is_new && other->second != value) differing_.insert(key);
      }
    }
    for (const std::string& key : differing_) model_.metadata.erase(key);
    source_.differing_.assign(differing_.begin(), differing_.end());
  }

  MergeSource& source_;
  PiecedModel& model_;
  const MergeSourceOptions& options_;
  Links links_;
  std::vector<SafetensorsHeader> headers_;
  std::vector<std::map<std::string, std::string>> aliases_;  // of each file
  std::map<std::string, size_t> placed_;                     // by the index
  std::map<std::pair<size_t, std::string>, ShardRecord> shards_;
  std::map<std::string, size_t> positions_;  // in tensors_
  std::set<std::string> differing_;
  bool are_pieces_ = false;  // the files hold pieces of models by rank
};

bool holds_foreign_shards(const fs::path& folder) {
  return is_dcp_folder(folder) || is_dcp_folder(folder / dcp_model_folder(0)) ||
         is_deepspeed_folder(folder);
}

MergeSource::MergeSource(const fs::path& source, const MergeSourceOptions& options) {
  Reader(*this, options).read(source);
}

}  // namespace accelerate::files
