// A checkpoint that is being loaded, as the parts of a training state see it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/safetensors.h"
#include "accelerate/torch_archive.h"
#include "files/manifest/manifest.h"

namespace accelerate::checkpoint {

// Whether there is such a directory and it has no manifest: it is of the Python library, if it is a
// checkpoint at all.
bool is_without_manifest(const std::filesystem::path& directory);

// One on each rank. One thread at a time.
class StateReader {
 public:
  // Of this library if it has a manifest, else of the Python library. Throws CheckpointError if the
  // directory is not there, or is neither.
  StateReader(std::filesystem::path directory, int rank, int world_size, bool strict);

  const std::filesystem::path& directory() const { return directory_; }
  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  // Ranks that wrote it.
  int saved_world_size() const { return saved_world_size_; }
  // Those of them, from 0 on, that wrote what is in pieces; the others held the same.
  int ranks_with_pieces() const;
  // Whether names and numbers must be the same as those that were saved.
  bool strict() const { return strict_; }
  bool is_ours() const { return manifest_.has_value(); }
  // What the parts have put into Snapshot::facts(); an empty object if it is not ours.
  const nlohmann::json& facts() const { return facts_; }

  bool has(std::string_view name) const;
  // How many files `stem`.ext, `stem`_1.ext, ... there are, without a gap.
  size_t count(std::string_view stem, std::string_view extension) const;
  // Throw CheckpointError if there is no such file, or it is damaged.
  TorchValue archive(const std::string& name) const;
  std::filesystem::path file(const std::string& name) const;
  // What the manifest says of the parts of that file; nothing if it is not ours.
  std::vector<files::PartRecord> parts(std::string_view name) const;
  // `name` with the directory, for errors.
  std::string where(std::string_view name) const;

  // Compares the number of saved things with those that are there: throws CheckpointError, or notes
  // it if not strict. `kind` is in the plural: "models".
  void require_count(const std::string& kind, size_t saved, size_t prepared);
  // Something that is not restored. All of it is logged on the main process after the load.
  void note(std::string what) { notes_.push_back(std::move(what)); }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  std::filesystem::path directory_;
  int rank_;
  int world_size_;
  int saved_world_size_ = 1;
  bool strict_;
  std::optional<files::Manifest> manifest_;
  nlohmann::json facts_ = nlohmann::json::object();
  std::vector<std::string> notes_;
};

}  // namespace accelerate::checkpoint
