// How the ranks write one checkpoint together.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/communicator.h"
#include "checkpoint/state/snapshot.h"
#include "files/manifest/checkpoint_writer.h"

namespace accelerate::checkpoint {

// Among the facts of a checkpoint: a text that tells it from all others. Checkpoints that one save
// has made on several nodes have the same.
inline constexpr const char* kSaveId = "save_id";

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
  // Collective: all ranks. What a leader throws is thrown on all of them, see agree(), and nothing
  // is left.
  static SaveJob begin(Communicator& ranks, const SaveGroup& group,
                       const std::function<SaveTarget()>& target);

  // Where the files go until the commit, and where they will be.
  const std::filesystem::path& directory() const { return directory_; }
  const std::filesystem::path& final_directory() const { return final_directory_; }
  Snapshot& snapshot() { return snapshot_; }
  void set_step(int64_t step) { step_ = step; }

  // Removes what is there. Not collective: see agree().
  void abandon() { writer_.reset(); }

  // Writes the files of this rank, lets the leaders collect the records of all and commit. Blocks
  // until the checkpoint is durable. Throws on all ranks alike if one of them cannot do its part:
  // then the checkpoint that was there before is there still on every node, and nothing is left of
  // the new one. Old checkpoints go once the new one is there on all nodes. May outlast the timeout
  // of the group. Throws CommError if a rank is lost: then some nodes may have the new checkpoint
  // and others not; load_candidates() finds what they have in common.
  // Collective: all ranks. Once.
  void write(Communicator& ranks);

 private:
  SaveJob(const SaveGroup& group, std::unique_ptr<files::CheckpointWriter> writer,
          std::filesystem::path directory, std::filesystem::path final_directory,
          std::string save_id);

  std::string write_own_files() const;
  std::vector<std::string> gather_records(Communicator& ranks, const std::string& own) const;
  files::Manifest manifest(const std::vector<std::string>& records_of_ranks) const;
  void take_back();

  SaveGroup group_;
  std::unique_ptr<files::CheckpointWriter> writer_;  // null unless this rank leads
  std::filesystem::path directory_;
  std::filesystem::path final_directory_;
  std::string save_id_;
  Snapshot snapshot_;
  int64_t step_ = 0;
};

}  // namespace accelerate::checkpoint
