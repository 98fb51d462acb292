// What one rank writes into a checkpoint, before it is written.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "accelerate/safetensors.h"
#include "accelerate/torch_archive.h"
#include "checkpoint/state/host_buffers.h"
#include "files/manifest/manifest.h"

namespace accelerate::checkpoint {

struct TensorsFile {
  NamedTensors tensors;
  SafetensorsMetadata metadata{};
  std::map<std::string, files::ShardRecord> shards{};  // of tensors that are pieces, by name
};

struct SnapshotFile {
  std::string name;
  std::variant<TensorsFile, TorchValue> content;
};

// Filled by the parts of a training state, then handed to whoever writes. One thread at a time.
class Snapshot {
 public:
  // `writes_shared_files`: whether this rank writes what all ranks have in common.
  explicit Snapshot(bool writes_shared_files) : writes_shared_files_(writes_shared_files) {}

  bool writes_shared_files() const { return writes_shared_files_; }

  // Ranks from this one on hold the same pieces as those before, and are left out.
  void take_pieces_below(int rank);
  bool takes_pieces_of(int rank) const { return !ranks_with_pieces_ || rank < *ranks_with_pieces_; }

  // The tensors are not copied: they are those of the training.
  void add(std::string name, NamedTensors tensors, SafetensorsMetadata metadata = {});
  void add(std::string name, TensorsFile file);
  void add(std::string name, TorchValue value);
  // What the manifest says of this state; counts on the ranks that write shared files.
  nlohmann::json& facts() { return facts_; }
  const nlohmann::json& facts() const { return facts_; }

  // Copies all tensors to host memory, page-locked if they come from a GPU, and waits until that is
  // done: training may then go on. Tensors that are the same view of one memory share the copy;
  // other views of it become copies of their own.
  void copy_to_host(HostBuffers& buffers);

  const std::vector<SnapshotFile>& files() const { return files_; }

 private:
  bool writes_shared_files_;
  std::optional<int> ranks_with_pieces_;
  std::vector<SnapshotFile> files_;
  nlohmann::json facts_ = nlohmann::json::object();
};

// Writes the file into `directory` and returns its record, with the types and shapes of the tensors
// of a safetensors file. Durable when it returns. Throws CheckpointError if it cannot be written.
files::FileRecord write_snapshot_file(const std::filesystem::path& directory,
                                      const SnapshotFile& file);

// A fact: how many ranks have written what is in pieces; only where these are not all.
inline constexpr const char* kRanksWithPieces = "ranks_with_pieces";

// "model.safetensors", "model_1.safetensors", ...: `stem`, the number from 1 on, `extension`.
std::string numbered_file(std::string_view stem, size_t number, std::string_view extension);

}  // namespace accelerate::checkpoint
