// How the ranks write one checkpoint together.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "accelerate/communicator.h"
#include "checkpoint/snapshot.h"
#include "files/checkpoint_writer.h"

namespace accelerate::checkpoint {

// The ranks that share a directory: all of them, or those of one node. One of them leads: it makes
// the directory and writes what the others have in common with it.
struct SaveGroup {
  int id = 0;
  bool is_leader = true;
};

struct SaveTarget {
  std::filesystem::path directory{};
  std::optional<int64_t> total_limit{};
};

// One save, in two steps: begin() while the training waits, write() there or on another thread.
// Between the two the owner fills snapshot(). One thread at a time.
class SaveJob {
 public:
  // The leaders ask `target` for the directory, take its lock and make an empty temporary one.
  // Collective: all ranks, with the same `own_problem` or none: an error that a rank brings is
  // thrown on all of them, as are those of the leaders. See agree().
  static SaveJob begin(Communicator& ranks, const SaveGroup& group,
                       const std::function<SaveTarget()>& target,
                       const std::exception_ptr& own_problem);

  // Where the files go until the commit, and where they will be.
  const std::filesystem::path& directory() const { return directory_; }
  const std::filesystem::path& final_directory() const { return final_directory_; }
  Snapshot& snapshot() { return snapshot_; }
  void set_step(int64_t step) { step_ = step; }

  // Instead of write(): removes what is there, and returns when that is done on all ranks.
  // Collective: all ranks.
  void abandon(Communicator& ranks);

  // Writes the files of this rank, lets the leaders collect the records of all and commit. Blocks
  // until the checkpoint is durable. Throws on all ranks alike if one of them cannot do its part:
  // then the checkpoint that was there before is there still, and nothing is left of the new one.
  // Collective: all ranks. Once.
  void write(Communicator& ranks);

 private:
  SaveJob(const SaveGroup& group, std::unique_ptr<files::CheckpointWriter> writer,
          std::filesystem::path directory, std::filesystem::path final_directory);

  std::string write_own_files() const;
  void commit(const std::vector<std::string>& records_of_ranks);

  SaveGroup group_;
  std::unique_ptr<files::CheckpointWriter> writer_;  // null unless this rank leads
  std::filesystem::path directory_;
  std::filesystem::path final_directory_;
  Snapshot snapshot_;
  int64_t step_ = 0;
};

}  // namespace accelerate::checkpoint
