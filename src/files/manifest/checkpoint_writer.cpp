#include "files/manifest/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>

#include "accelerate/errors.h"
#include "files/durable/directory_lock.h"
#include "files/durable/system_calls.h"
#include "files/manifest/checkpoint_names.h"
#include "files/manifest/manifest_file.h"
#include "files/manifest/rotation.h"
#include "files/manifest/verification.h"

namespace accelerate::files {
namespace {

// The path that the checkpoint will have, without links: the temporary directory must be on the
// same file system.
std::filesystem::path resolve(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::path path =
      std::filesystem::weakly_canonical(std::filesystem::absolute(directory), error);
  if (error)
    throw system_error("the path cannot be resolved", directory, error.value(), Access::kRead);
  if (!path.has_filename()) path = path.parent_path();
  if (!path.has_filename() || hidden_name(path.filename().string())) {
    throw CheckpointError({.what = "a checkpoint cannot have that name",
                           .where = path.string(),
                           .hint = "name a new folder"});
  }
  return path;
}

// Throws if the directory, if it is there, holds anything but a checkpoint: it is to be replaced.
void check_replaceable(const std::filesystem::path& directory) {
  const EntryKind kind = entry_kind(directory);
  if (kind == EntryKind::kMissing) return;
  const auto refuse = [&](const std::string& what) {
    throw CheckpointError({.what = what,
                           .where = directory.string(),
                           .hint = "save to another folder, or move away what is there"});
  };
  if (kind != EntryKind::kDirectory) refuse("what is there is not a checkpoint");
  const std::vector<std::string> names = entry_names(directory);
  if (names.empty()) return;
  if (std::find(names.begin(), names.end(), kManifestName) == names.end()) {
    refuse("the folder holds " + names.front() +
           " and no manifest: it is not a checkpoint that may be replaced");
  }
  std::set<std::string, std::less<>> own{std::string(kManifestName)};
  std::string damage;
  try {
    for (const FileRecord& file : read_manifest(open_directory(directory), directory).files) {
      own.insert(file.name);
    }
  } catch (const CheckpointError& error) {
    // A save must not fail because the one before it was damaged: where the manifest cannot say
    // what is part of the checkpoint, the names do.
    damage = " (its manifest cannot be used: " + error.message() + ")";
  }
  for (const std::string& name : names) {
    if (own.contains(name) || (!damage.empty() && is_state_file(name))) continue;
    refuse("the folder holds " + name + ", which is not part of a checkpoint" + damage);
  }
}

// What crashed saves of the same series have left. The lock is held: nobody is at work on it.
void remove_leftovers(const std::filesystem::path& parent, const std::string& lock,
                      std::vector<std::string>& left_over) {
  for (const std::string& name : entry_names(parent)) {
    const auto hidden = hidden_name(name);
    if (!hidden || lock_name(hidden->checkpoint) != lock) continue;
    const std::filesystem::path original = parent / hidden->checkpoint;
    if (hidden->kind == HiddenKind::kSetAside && entry_kind(original) == EntryKind::kMissing) {
      rename_entry(parent / name, original);
      continue;
    }
    std::string error;
    if (!remove_tree(parent / name, error)) left_over.push_back(error);
  }
}

// Throws unless the directory holds exactly the files of the records.
void check_written(const std::filesystem::path& directory, const std::vector<FileRecord>& files) {
  const std::vector<std::string> names = entry_names(directory);
  std::set<std::string, std::less<>> unlisted(names.begin(), names.end());
  for (const FileRecord& file : files) unlisted.erase(file.name);
  if (!unlisted.empty()) {
    throw CheckpointError({.what = "no rank has recorded " + *unlisted.begin(),
                           .where = (directory / *unlisted.begin()).string(),
                           .hint = "list every file in the manifest (record_written_file)"});
  }
  const Manifest written{.files = files};
  const auto findings =
      verify_files(open_directory(directory), directory, written, {.data_checksums = false});
  if (findings.empty()) return;
  throw CheckpointError(
      {.what = "a rank has not written what it recorded: " + findings.front().text(),
       .where = (directory / findings.front().file).string(),
       .hint = "all ranks must write to one file system"});
}

int64_t seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace

struct CheckpointWriter::State {
  enum class Phase { kWriting, kPrepared, kPublished, kFinished };

  State(std::filesystem::path final_path, const WriterOptions& writer_options)
      : final_directory(std::move(final_path)),
        parent(final_directory.parent_path()),
        name(final_directory.filename().string()),
        options(writer_options),
        lock(parent / lock_name(name)) {}

  ~State() {
    std::string error;
    // What cannot be removed now is removed by the next save.
    if (owns_temporary && !remove_tree(temporary, error)) owns_temporary = false;
  }

  // Calls `step`; if it throws, `back` before the error goes on. If that fails too, both
  // directories stay as they are: one of them is complete, the next save sorts it out.
  template <typename Step, typename Back>
  void guarded(Step step, Back back) {
    try {
      step();
    } catch (const CheckpointError&) {
      const std::exception_ptr first = std::current_exception();
      try {
        back();
      } catch (const CheckpointError&) {
        std::rethrow_exception(first);
      }
      throw;
    }
  }

  void publish_new() {
    rename_entry(temporary, final_directory);
    owns_temporary = false;
  }

  // Both names are there at every instant; one step makes the new checkpoint the visible one.
  bool publish_by_exchange() {
    if (!exchange_entries(temporary, final_directory)) return false;
    owns_temporary = false;
    replaced = temporary;
    return true;
  }

  // Where names cannot be exchanged there is an instant without the name. Readers know where the
  // old checkpoint is then, and the next save puts it back.
  void publish_by_setting_aside() {
    const auto aside = parent / make_hidden_name(HiddenKind::kSetAside, name);
    rename_entry(final_directory, aside);
    guarded([&] { rename_entry(temporary, final_directory); },
            [&] {
              owns_temporary = false;
              rename_entry(aside, final_directory);
              owns_temporary = true;
            });
    owns_temporary = false;
    replaced = aside;
  }

  void publish() {
    if (entry_kind(final_directory) == EntryKind::kMissing) {
      publish_new();
    } else {
      check_replaceable(final_directory);
      if (!publish_by_exchange()) publish_by_setting_aside();
    }
    guarded([&] { sync_directory(parent); }, [&] { unpublish(); });
    phase = Phase::kPublished;
  }

  // The new checkpoint is the temporary one again, the old one is where it was.
  void unpublish() {
    if (replaced == temporary) {
      if (!exchange_entries(temporary, final_directory)) {
        throw system_error("it cannot be swapped back", final_directory, EINVAL);
      }
    } else {
      rename_entry(final_directory, temporary);
      if (replaced) rename_entry(*replaced, final_directory);
    }
    replaced.reset();
    owns_temporary = true;
    phase = Phase::kPrepared;
  }

  void require(Phase wanted) const {
    if (phase == wanted) return;
    throw UsageError({.what = "the steps of this save were called out of order or twice",
                      .where = final_directory.string(),
                      .hint = "begin a new save with a new CheckpointWriter"});
  }

  void discard(const std::filesystem::path& directory) {
    std::string error;
    if (!remove_tree(directory, error)) left_over.push_back(error);
  }

  std::filesystem::path final_directory;
  std::filesystem::path parent;
  std::string name;
  WriterOptions options;
  DirectoryLock lock;
  std::filesystem::path temporary;
  bool owns_temporary = false;
  Phase phase = Phase::kWriting;
  // Where the checkpoint is that the published one has replaced, if it has.
  std::optional<std::filesystem::path> replaced;
  std::vector<std::string> left_over;
};

CheckpointWriter::CheckpointWriter(const std::filesystem::path& final_directory,
                                   const WriterOptions& options) {
  if (options.total_limit && *options.total_limit < 1) {
    throw UsageError({.what = "total_limit is " + std::to_string(*options.total_limit),
                      .hint = "keep at least one checkpoint, or leave total_limit unset"});
  }
  const std::filesystem::path path = resolve(final_directory);
  make_directories(path.parent_path());
  state_ = std::make_unique<State>(path, options);
  if (state_->lock.is_exclusive()) {
    remove_leftovers(state_->parent, lock_name(state_->name), state_->left_over);
  }
  check_replaceable(path);
  state_->temporary = state_->parent / make_hidden_name(HiddenKind::kTemporary, state_->name);
  make_directory(state_->temporary);
  state_->owns_temporary = true;
}

CheckpointWriter::CheckpointWriter(CheckpointWriter&&) noexcept = default;
CheckpointWriter::~CheckpointWriter() = default;

const std::filesystem::path& CheckpointWriter::directory() const { return state_->temporary; }

const std::filesystem::path& CheckpointWriter::final_directory() const {
  return state_->final_directory;
}

DurableFile CheckpointWriter::create(const std::string& name) const {
  return DurableFile(state_->temporary, name);
}

void CheckpointWriter::prepare(Manifest manifest) {
  State& state = *state_;
  state.require(State::Phase::kWriting);
  if (manifest.created == 0) manifest.created = seconds_since_1970();
  const std::string text = manifest_text(manifest);
  check_written(state.temporary, manifest.files);
  DurableFile file = create(std::string(kManifestName));
  file.write(std::as_bytes(std::span(text)));
  file.close();
  sync_directory(state.temporary);
  state.phase = State::Phase::kPrepared;
}

void CheckpointWriter::publish() {
  state_->require(State::Phase::kPrepared);
  state_->publish();
}

void CheckpointWriter::take_back() {
  if (state_->phase != State::Phase::kPublished) return;
  state_->unpublish();
  sync_directory(state_->parent);
}

CommitReport CheckpointWriter::finish() {
  State& state = *state_;
  state.require(State::Phase::kPublished);
  state.phase = State::Phase::kFinished;
  CommitReport report{.directory = state.final_directory};
  try {
    if (state.replaced) state.discard(*state.replaced);
    if (state.options.total_limit) {
      RotationReport rotation = rotate(state.parent, state.name, *state.options.total_limit);
      report.rotated = std::move(rotation.removed);
      for (std::string& sentence : rotation.left_over) {
        state.left_over.push_back(std::move(sentence));
      }
    }
  } catch (const std::exception& error) {
    state.left_over.push_back(state.parent.string() +
                              ": old checkpoints cannot be removed: " + error.what());
  }
  report.left_over = std::move(state.left_over);
  return report;
}

CommitReport CheckpointWriter::commit(Manifest manifest) {
  prepare(std::move(manifest));
  publish();
  return finish();
}

}  // namespace accelerate::files
