#include "checkpoint/state/state_saving.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "base/library_version.h"
#include "base/random_id.h"
#include "checkpoint/state/state_agreement.h"
#include "files/durable/durable_file.h"

namespace accelerate::checkpoint {
namespace {

// The records of what hooks have left in the directory.
std::vector<files::FileRecord> records_of_others(const std::filesystem::path& directory,
                                                 const std::vector<files::FileRecord>& own) {
  std::vector<files::FileRecord> records;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (std::ranges::find(own, name, &files::FileRecord::name) != own.end()) continue;
    if (entry.is_directory()) {
      throw CheckpointError({.what = "a hook has made the folder " + name,
                             .where = directory.string(),
                             .hint = "let hooks write files into the directory they are given"});
    }
    records.push_back(files::record_written_file(directory, name));
  }
  return records;
}

}  // namespace

SaveJob::SaveJob(const SaveGroup& group, std::unique_ptr<files::CheckpointWriter> writer,
                 std::filesystem::path directory, std::filesystem::path final_directory,
                 std::string save_id)
    : group_(group),
      writer_(std::move(writer)),
      directory_(std::move(directory)),
      final_directory_(std::move(final_directory)),
      save_id_(std::move(save_id)),
      snapshot_(group.is_leader) {}

SaveJob SaveJob::begin(Communicator& ranks, const SaveGroup& group,
                       const std::function<SaveTarget()>& target) {
  std::unique_ptr<files::CheckpointWriter> writer;
  std::string own;  // of a leader: its group, the two directories, and an id
  const auto open = [&] {
    if (!group.is_leader) return;
    const SaveTarget wanted = target();
    writer = std::make_unique<files::CheckpointWriter>(
        wanted.directory, files::WriterOptions{.total_limit = wanted.total_limit});
    own = comm::to_fields({std::to_string(group.id), writer->directory().string(),
                           writer->final_directory().string(), random_id()});
  };
  const auto remove = [&] { writer.reset(); };
  agree(ranks, open, {.takes_long = true, .take_back = remove});
  std::vector<std::string> place;
  std::string save_id;  // that of the first leader counts for all
  for (const std::string& fields : ranks.all_gather_bytes(own)) {
    if (fields.empty()) continue;
    std::vector<std::string> of_leader = comm::from_fields(fields);
    if (save_id.empty()) save_id = of_leader[3];
    if (of_leader[0] == std::to_string(group.id)) place = std::move(of_leader);
  }
  const auto require_leader = [&] {
    if (!place.empty()) return;
    throw CheckpointError({.what = "no rank of this node leads the save",
                           .where = "save_state",
                           .hint = "start the ranks of each node with LOCAL_RANK from 0 on"});
  };
  agree(ranks, require_leader, {.take_back = remove});
  return SaveJob(group, std::move(writer), place[1], place[2], std::move(save_id));
}

std::string SaveJob::write_own_files() const {
  std::vector<files::FileRecord> records;
  for (const SnapshotFile& file : snapshot_.files()) {
    records.push_back(write_snapshot_file(directory_, file));
  }
  return files::records_text(records);
}

// By rank; nothing for those of other groups.
std::vector<std::string> SaveJob::gather_records(Communicator& ranks,
                                                 const std::string& own) const {
  std::vector<std::string> records;
  for (const std::string& fields :
       ranks.all_gather_bytes(comm::to_fields({std::to_string(group_.id), own}))) {
    std::vector<std::string> of_rank = comm::from_fields(fields);
    const bool shares_directory = of_rank[0] == std::to_string(group_.id);
    records.push_back(shares_directory ? std::move(of_rank[1]) : std::string());
  }
  return records;
}

void SaveJob::write(Communicator& ranks) {
  const auto remove = [&] { writer_.reset(); };
  std::string own;
  agree(ranks, [&] { own = write_own_files(); }, {.takes_long = true, .take_back = remove});
  const std::vector<std::string> records = gather_records(ranks, own);
  const auto on_leaders = [&](const std::function<void()>& step,
                              const std::function<void()>& undo) {
    const auto work = [&] {
      if (writer_) step();
    };
    agree(ranks, work, {.takes_long = true, .take_back = undo});
  };
  on_leaders([&] { writer_->prepare(manifest(records)); }, remove);
  on_leaders([&] { writer_->publish(); }, [&] { take_back(); });
  // It is there on all nodes: only now may an old one go.
  const auto finish = [&] {
    for (const std::string& sentence : writer_->finish().left_over) {
      log(LogLevel::kWarning, sentence);
    }
    writer_.reset();  // gives the lock back before anybody returns
  };
  on_leaders(finish, nullptr);
}

void SaveJob::take_back() {
  if (!writer_) return;
  try {
    writer_->take_back();
  } catch (const CheckpointError& error) {
    log(LogLevel::kError, "a checkpoint that other nodes do not have is kept: " + error.where() +
                              ": " + error.message());
  }
  writer_.reset();
}

files::Manifest SaveJob::manifest(const std::vector<std::string>& records_of_ranks) const {
  files::Manifest manifest{.library_version = library_version(),
                           .world_size = static_cast<int64_t>(records_of_ranks.size()),
                           .step = step_,
                           .state = snapshot_.facts()};
  manifest.state[kSaveId] = save_id_;
  for (size_t rank = 0; rank < records_of_ranks.size(); ++rank) {
    if (records_of_ranks[rank].empty()) continue;
    for (files::FileRecord& record :
         files::parse_records(records_of_ranks[rank], "rank " + std::to_string(rank))) {
      manifest.files.push_back(std::move(record));
    }
  }
  for (files::FileRecord& record : records_of_others(directory_, manifest.files)) {
    manifest.files.push_back(std::move(record));
  }
  return manifest;
}

}  // namespace accelerate::checkpoint
