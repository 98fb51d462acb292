#include "checkpoint/state/state_reader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "accelerate/errors.h"
#include "checkpoint/state/rng_part.h"
#include "checkpoint/state/snapshot.h"
#include "files/manifest/checkpoint_directory.h"

namespace accelerate::checkpoint {

bool is_without_manifest(const std::filesystem::path& directory) {
  std::error_code error;
  return std::filesystem::is_directory(directory, error) &&
         !std::filesystem::exists(directory / files::kManifestName, error);
}

StateReader::StateReader(std::filesystem::path directory, int rank, int world_size, bool strict)
    : directory_(std::move(directory)), rank_(rank), world_size_(world_size), strict_(strict) {
  if (!is_without_manifest(directory_)) {
    const files::CheckpointDirectory complete(directory_);
    directory_ = complete.path();
    manifest_ = complete.manifest();
    facts_ = manifest_->state;
    saved_world_size_ = static_cast<int>(manifest_->world_size);
    return;
  }
  std::error_code error;
  saved_world_size_ = 0;
  while (std::filesystem::exists(directory_ / rng_file(saved_world_size_), error)) {
    ++saved_world_size_;
  }
  if (saved_world_size_ > 0) return;
  throw CheckpointError({.what = "the directory holds neither a manifest nor random_states_0.pkl",
                         .where = directory_.string(),
                         .hint = "load a directory that save_state() has written"});
}

int StateReader::ranks_with_pieces() const {
  const auto found = facts_.find(kRanksWithPieces);
  return found == facts_.end() ? saved_world_size_ : found->get<int>();
}

bool StateReader::has(std::string_view name) const {
  if (manifest_)
    return std::ranges::find(manifest_->files, name, &files::FileRecord::name) !=
           manifest_->files.end();
  std::error_code error;
  return std::filesystem::is_regular_file(directory_ / name, error);
}

size_t StateReader::count(std::string_view stem, std::string_view extension) const {
  size_t number = 0;
  while (has(numbered_file(stem, number, extension))) ++number;
  return number;
}

TorchValue StateReader::archive(const std::string& name) const {
  return load_torch_archive(file(name));
}

std::filesystem::path StateReader::file(const std::string& name) const {
  if (has(name)) return directory_ / name;
  throw CheckpointError({.what = "the checkpoint has no " + name,
                         .where = directory_.string(),
                         .hint = "load a checkpoint of the same objects"});
}

std::vector<files::PartRecord> StateReader::parts(std::string_view name) const {
  if (!manifest_) return {};
  const auto found = std::ranges::find(manifest_->files, name, &files::FileRecord::name);
  return found == manifest_->files.end() ? std::vector<files::PartRecord>{} : found->parts;
}

std::string StateReader::where(std::string_view name) const { return (directory_ / name).string(); }

void StateReader::require_count(const std::string& kind, size_t saved, size_t prepared) {
  if (saved == prepared) return;
  const std::string what = "the checkpoint holds " + std::to_string(saved) + " " + kind +
                           ", this program has " + std::to_string(prepared);
  if (!strict_) return note(what);
  throw CheckpointError({.what = what,
                         .where = directory_.string(),
                         .hint = "prepare and register the same objects in the same order, or pass "
                                 "{.strict = false}"});
}

}  // namespace accelerate::checkpoint
