#include "files/dcp/dcp_folder.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/dcp/dcp_groups.h"
#include "files/dcp/dcp_metadata.h"
#include "files/durable/system_calls.h"
#include "files/pickle/pickle_fields.h"
#include "files/pieces/archived_tensor.h"
#include "files/safetensors/mapped_checkpoint.h"
#include "files/safetensors/safetensors_header.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDcpMetadata = ".metadata";
constexpr std::string_view kDcpSuffix = ".distcp";
constexpr std::string_view kStateKey = "state";

[[noreturn]] void refuse_dcp(const fs::path& path, const std::string& what) {
  throw CheckpointError({.what = what,
                         .where = path.string(),
                         .hint = "copy all files of the folder again, or use another checkpoint"});
}

// The names that tensors and values have once they are merged.
class DcpNames {
 public:
  explicit DcpNames(const DcpMetadata& metadata) : metadata_(metadata) {
    std::set<std::string> tops;
    bool are_nested = true;
    const auto look_at = [&](const std::string& name) {
      const auto path = metadata.paths.find(name);
      if (path == metadata.paths.end() || path->second.size() < 2) {
        are_nested = false;
      } else {
        tops.insert(path->second.front());
      }
    };
    for (const DcpTensor& tensor : metadata.tensors) look_at(tensor.name);
    for (const std::string& name : metadata.values) look_at(name);
    skipped_ = are_nested && tops.size() == 1 ? 1 : 0;
    is_optimizer_ = !metadata.tensors.empty() || !metadata.values.empty();
    const auto require_optimizer = [&](const std::string& name) {
      const std::vector<std::string> path = path_of(name);
      // {"state": {parameter: {field: ...}}, "param_groups": {number: {option: ...}}}
      is_optimizer_ = is_optimizer_ && path.size() == 3 &&
                      (path.front() == kStateKey || path.front() == kParamGroupsKey);
    };
    for (const DcpTensor& tensor : metadata.tensors) require_optimizer(tensor.name);
    for (const std::string& name : metadata.values) require_optimizer(name);
  }

  bool is_optimizer() const { return is_optimizer_; }

  std::vector<std::string> path_of(const std::string& name) const {
    const auto path = metadata_.paths.find(name);
    if (path == metadata_.paths.end() || path->second.empty()) return {name};
    return {path->second.begin() + skipped_, path->second.end()};
  }

  std::string merged(const std::string& name) const {
    const std::vector<std::string> path = path_of(name);
    const size_t first = is_optimizer_ && path.front() == kStateKey ? 1 : 0;
    std::string text;
    for (size_t i = first; i < path.size(); ++i) text += (i > first ? "." : "") + path[i];
    return text;
  }

 private:
  const DcpMetadata& metadata_;
  int skipped_ = 0;  // keys that lead to everything
  bool is_optimizer_ = false;
};

class DcpReader {
 public:
  DcpReader(const fs::path& folder, Links links) : folder_(fs::canonical(folder)), links_(links) {}

  DcpState read() {
    check_model_file(folder_, kDcpMetadata, folder_, links_);
    const fs::path path = folder_ / kDcpMetadata;
    const auto mapped = map_checkpoint_file(path, "the .metadata of torch.distributed.checkpoint");
    const DcpMetadata metadata = parse_dcp_metadata(mapped->bytes(), path.string());
    state_.model.folder = folder_;
    state_.model.metadata.emplace("format", "pt");
    open_files(metadata);
    check_apart(metadata);
    const DcpNames names(metadata);
    state_.is_optimizer = names.is_optimizer();
    std::set<std::string> seen;
    for (const DcpTensor& tensor : metadata.tensors) {
      add_tensor(tensor, names.merged(tensor.name), metadata);
      if (!seen.insert(state_.model.tensors.back().name).second) {
        refuse_dcp(path, "two tensors are named " + in_quotes(state_.model.tensors.back().name));
      }
    }
    for (const std::string& name : metadata.values) add_value(name, names, metadata);
    if (!groups_.empty()) state_.model.metadata.emplace(kParamGroupsKey, groups_.text());
    require_whole_tensors(state_.model);
    list_files();
    return std::move(state_);
  }

 private:
  // Those that hold something, in the order of their names.
  void open_files(const DcpMetadata& metadata) {
    std::set<std::string> files;
    for (const auto& [key, item] : metadata.chunk_items) files.insert(item.file);
    for (const auto& [key, item] : metadata.value_items) files.insert(item.file);
    for (const std::string& file : files) {
      if (file.empty() || file.find('/') != file.npos || file.find('\0') != file.npos) {
        refuse_dcp(folder_ / kDcpMetadata,
                   "it names the file " + in_quotes(file) + ", which is not one of the folder");
      }
      check_model_file(folder_, file, folder_ / kDcpMetadata, links_);
      numbers_.emplace(file, state_.model.mappings.size());
      state_.model.mappings.push_back(map_checkpoint_file(folder_ / file, "the .distcp file"));
    }
  }

  // Items lie in their files, and each byte belongs to one of them at most: nobody makes much of
  // little by naming it often.
  void check_apart(const DcpMetadata& metadata) const {
    std::map<size_t, std::vector<std::pair<uint64_t, uint64_t>>> ranges;
    const auto add = [&](const std::string& name, const DcpItem& item) {
      const size_t file = numbers_.at(item.file);
      const uint64_t size = state_.model.mappings[file]->size();
      if (item.offset > size || item.length > size - item.offset) {
        refuse_dcp(folder_ / item.file, "the file has " + std::to_string(size) + " bytes, and " +
                                            in_quotes(name) + " is said to be at " +
                                            std::to_string(item.offset) + " with " +
                                            std::to_string(item.length));
      }
      if (item.length > 0) ranges[file].emplace_back(item.offset, item.offset + item.length);
    };
    for (const auto& [key, item] : metadata.chunk_items) add(key.first, item);
    for (const auto& [name, item] : metadata.value_items) add(name, item);
    for (auto& [file, parts] : ranges) {
      std::ranges::sort(parts);
      for (size_t i = 1; i < parts.size(); ++i) {
        if (parts[i - 1].second <= parts[i].first) continue;
        refuse_dcp(state_.model.mappings[file]->path(),
                   "two items share the bytes from " + std::to_string(parts[i].first) + " on");
      }
    }
  }

  std::span<const std::byte> bytes_of(const DcpItem& item) const {
    const MappedFile& file = *state_.model.mappings[numbers_.at(item.file)];
    return file.bytes().subspan(item.offset, item.length);
  }

  void add_tensor(const DcpTensor& stored, const std::string& name, const DcpMetadata& metadata) {
    PiecedTensor tensor{.name = name, .dtype = stored.dtype, .shape = stored.shape};
    std::set<std::vector<uint64_t>> starts;
    for (const DcpChunk& chunk : stored.chunks) {
      // A rank that has no part of it says so by a chunk without elements, which nobody reads.
      if (std::ranges::find(chunk.shape, 0) != chunk.shape.end()) continue;
      const auto item = metadata.chunk_items.find(std::pair(stored.name, chunk.start));
      if (item == metadata.chunk_items.end()) {
        refuse_dcp(folder_ / kDcpMetadata,
                   "it does not say where a chunk of " + in_quotes(stored.name) + " is");
      }
      // Ranks that keep the same may both be listed.
      if (!starts.insert(chunk.start).second) continue;
      tensor.pieces.push_back(piece_of(stored, chunk, item->second));
    }
    state_.model.tensors.push_back(std::move(tensor));
  }

  TensorPiece piece_of(const DcpTensor& stored, const DcpChunk& chunk, const DcpItem& item) const {
    const size_t number = numbers_.at(item.file);
    const MappedFile& file = *state_.model.mappings[number];
    const std::string where = file.path().string();
    const PickleArchive archive(bytes_of(item), where);
    file.forget(item.offset, item.length);
    const std::string subject = "tensor " + in_quotes(stored.name);
    const PickleFields fields(archive.document(), where,
                              "a tensor of torch.distributed.checkpoint");
    ArchivedTensor located = locate_tensor(archive, fields.tensor(archive.document().root, subject),
                                           file.bytes(), subject, where);
    if (located.dtype != stored.dtype || located.piece.shape != chunk.shape) {
      refuse_dcp(file.path(), "a chunk of " + in_quotes(stored.name) +
                                  " has another shape or type than .metadata says");
    }
    located.piece.file = number;
    located.piece.start = chunk.start;
    return std::move(located.piece);
  }

  void add_value(const std::string& name, const DcpNames& names, const DcpMetadata& metadata) {
    const auto item = metadata.value_items.find(name);
    if (item == metadata.value_items.end()) {
      refuse_dcp(folder_ / kDcpMetadata, "it does not say where " + in_quotes(name) + " is");
    }
    const std::vector<std::string> path = names.path_of(name);
    const bool is_option = names.is_optimizer() && path.front() == kParamGroupsKey;
    if (is_option && groups_.add({path.begin() + 1, path.end()}, bytes_of(item->second),
                                 (folder_ / item->second.file).string())) {
      return;
    }
    state_.model.left_out.push_back(names.merged(name));
  }

  void list_files() {
    for (const std::string& name : entry_names(folder_)) {
      if (name.ends_with(kDcpSuffix) || numbers_.contains(name)) {
        state_.model.paths.push_back(folder_ / name);
      }
    }
    state_.model.paths.push_back(folder_ / kDcpMetadata);
  }

  fs::path folder_;
  Links links_;
  DcpState state_;
  DcpGroups groups_;
  std::map<std::string, size_t> numbers_;  // of the mapped files
};

}  // namespace

std::string dcp_model_folder(size_t number) {
  return "pytorch_model_fsdp_" + std::to_string(number);
}

std::string dcp_optimizer_folder(size_t number) { return "optimizer_" + std::to_string(number); }

bool is_dcp_folder(const fs::path& folder) {
  return leads_to_directory(folder) && entry_kind(folder / kDcpMetadata) != EntryKind::kMissing;
}

DcpState read_dcp_folder(const fs::path& folder, Links links) {
  return DcpReader(folder, links).read();
}

}  // namespace accelerate::files
