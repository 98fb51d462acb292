// Finds and reads checkpoints. Nothing here writes or takes the lock: any process may look at any
// time, also while another one saves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/manifest/manifest.h"
#include "files/manifest/verification.h"

namespace accelerate::files {

// A checkpoint that is complete: its manifest fits itself, and all files that it lists are there
// with their sizes. (That their contents fit is for verify() to say.)
class CheckpointDirectory {
 public:
  // Throws CheckpointError that names what is missing or wrong.
  explicit CheckpointDirectory(const std::filesystem::path& directory);

  // Where it is: `directory` as an absolute path; or the name under which a save that was
  // interrupted while it replaced this very checkpoint has set it aside.
  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  // The record of that file, or nullptr.
  const FileRecord* find(std::string_view name) const;
  // The path of a file that the manifest lists: a regular file in this directory, no link. Throws
  // CheckpointError for every other name.
  std::filesystem::path file(std::string_view name) const;

 private:
  std::filesystem::path path_;
  Manifest manifest_;
};

struct CheckpointEntry {
  std::string name{};                  // "checkpoint_7"
  std::filesystem::path directory{};   // where it is, as CheckpointDirectory::path()
  std::optional<int64_t> number{};     // 7, if it is one of a series
  std::string problem{};               // why it cannot be used; empty if it is complete
  std::optional<Manifest> manifest{};  // if it could be read

  bool is_complete() const { return problem.empty(); }
};

// The checkpoint of that path, as list_checkpoints() has it; nothing if what is there is none, nor
// looks as if it should be. Its siblings are not opened.
std::optional<CheckpointEntry> look_at_checkpoint(const std::filesystem::path& directory);

// The checkpoints in a folder: complete ones, and directories that look as if they should be one
// (a name of a series, or a manifest). Sorted by series and number, then by name; temporary
// directories are left out, and so are those that may not be looked into. Throws CheckpointError if
// `parent` itself cannot be read.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& parent);

// The complete checkpoint checkpoint_<n> with the largest n in that folder. Torn ones are skipped;
// with {.data_checksums = true} also those whose contents do not fit, at the price of reading all
// of it. Nothing if there is none, or no such folder.
std::optional<CheckpointEntry> newest_complete(const std::filesystem::path& parent,
                                               const VerifyOptions& options = {
                                                   .data_checksums = false});

}  // namespace accelerate::files
