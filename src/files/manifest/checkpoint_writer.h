// Writes a checkpoint so that it is there completely, or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "files/durable/durable_file.h"
#include "files/manifest/manifest.h"

namespace accelerate::files {

struct WriterOptions {
  // How many complete checkpoints of the series (checkpoint_<n>) stay, the new one included. Unset:
  // all. Older ones are deleted after the new one is in place, never before.
  std::optional<int64_t> total_limit{};
};

struct CommitReport {
  std::filesystem::path directory{};   // where the checkpoint is now
  std::vector<std::string> rotated{};  // names of the older checkpoints that were deleted
  // What should have been deleted and could not be, one sentence each. The checkpoint itself is
  // fine; the next save tries again. To be logged.
  std::vector<std::string> left_over{};
};

// One save. Rank 0 owns the writer; the other ranks write their files into directory() with
// DurableFile and send rank 0 their records (records_text). Any thread, one at a time.
//
//   CheckpointWriter writer("runs/a/checkpoint_7", {.total_limit = 3});
//   DurableFile file = writer.create("model.safetensors");
//   ...                                                       // file.write()
//   manifest.files.push_back(file.close());
//   writer.commit(manifest);
//
// At every instant the old checkpoint of that name, if there was one, or the new one can be read,
// whatever process is killed. An object that goes without a commit removes all it wrote: let the
// other ranks have stopped writing by then.
class CheckpointWriter {
 public:
  // Creates the folder above `final_directory` if need be, takes the lock, removes what crashed
  // saves of the same series have left, and makes an empty temporary directory beside the final
  // one. Throws CheckpointError if another job holds the lock, or if `final_directory` is there and
  // holds something that no checkpoint put there: replacing it would delete that. What a checkpoint
  // put there its manifest says; if that is damaged, the names that save_state() gives its files.
  explicit CheckpointWriter(const std::filesystem::path& final_directory,
                            const WriterOptions& options = {});
  CheckpointWriter(CheckpointWriter&&) noexcept;
  CheckpointWriter& operator=(CheckpointWriter&&) = delete;
  ~CheckpointWriter();

  // Where the files of all ranks go until the commit. Absolute.
  const std::filesystem::path& directory() const;
  // The absolute path that the checkpoint will have.
  const std::filesystem::path& final_directory() const;

  DurableFile create(const std::string& name) const;

  // Makes the checkpoint the one of that name: prepare(), publish() and finish(). `manifest.files`
  // must list all files in directory(), of all ranks. Blocks until it is durable. Throws
  // CheckpointError if it cannot be: then the checkpoint that was there before is there still, and
  // nothing of the new one is left. Once.
  CommitReport commit(Manifest manifest);

  // The same step by step, for several writers that commit together: all must have done a step
  // before one begins the next. Throw CheckpointError as commit() does, up to finish().
  //
  // Writes the manifest: what can fail for want of space or rights has failed then.
  void prepare(Manifest manifest);
  // The checkpoint has its name, for good. What had that name before is kept.
  void publish();
  // Instead of finish(), if another writer could not publish(): the checkpoint that was there
  // before is there again. Does nothing unless publish() was done. Throws CheckpointError if that
  // cannot be.
  void take_back();
  // Deletes the checkpoint that was replaced and those beyond the limit. A writer that goes without
  // it leaves that to the next save.
  CommitReport finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace accelerate::files
