#include "checkpoint/state_saving.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "checkpoint/state_agreement.h"
#include "checkpoint/state_version.h"
#include "files/durable_file.h"

namespace accelerate::checkpoint {
namespace {

constexpr char kEnd = '\0';

// What a rank tells the others: an error, or its group and some text.
struct Message {
  std::string error{};  // see error_bytes()
  int group = 0;
  bool is_leader = false;
  std::string text{};

  std::string bytes() const {
    if (!error.empty()) return "E" + error;
    return (is_leader ? "L" : "M") + std::to_string(group) + kEnd + text;
  }
  static Message parse(const std::string& bytes) {
    if (bytes[0] == 'E') return {.error = bytes.substr(1)};
    const size_t end = bytes.find(kEnd);
    return {.group = std::stoi(bytes.substr(1, end - 1)),
            .is_leader = bytes[0] == 'L',
            .text = bytes.substr(end + 1)};
  }
};

// What all ranks say, in their order. If one of them has an error all throw it, once all have run
// `take_back`: whoever sees the error sees nothing left of what failed.
std::vector<Message> exchange(Communicator& ranks, Message own, const std::exception_ptr& problem,
                              const std::function<void()>& take_back) {
  own.error = error_bytes(problem);
  std::vector<Message> all;
  for (const std::string& bytes : ranks.all_gather_bytes(own.bytes())) {
    all.push_back(Message::parse(bytes));
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].error.empty()) continue;
    take_back();
    ranks.barrier();
    if (static_cast<int>(rank) == ranks.rank()) std::rethrow_exception(problem);
    throw_error_of(all[rank].error, static_cast<int>(rank), ranks.world_size());
  }
  return all;
}

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
                 std::filesystem::path directory, std::filesystem::path final_directory)
    : group_(group),
      writer_(std::move(writer)),
      directory_(std::move(directory)),
      final_directory_(std::move(final_directory)),
      snapshot_(group.is_leader) {}

SaveJob SaveJob::begin(Communicator& ranks, const SaveGroup& group,
                       const std::function<SaveTarget()>& target,
                       const std::exception_ptr& own_problem) {
  std::unique_ptr<files::CheckpointWriter> writer;
  std::exception_ptr problem = own_problem;
  Message own{.group = group.id, .is_leader = group.is_leader};
  if (group.is_leader && !problem) {
    problem = caught([&] {
      const SaveTarget wanted = target();
      writer = std::make_unique<files::CheckpointWriter>(
          wanted.directory, files::WriterOptions{.total_limit = wanted.total_limit});
      own.text = writer->directory().string() + kEnd + writer->final_directory().string();
    });
  }
  const auto take_back = [&] { writer.reset(); };
  for (const Message& message : exchange(ranks, own, problem, take_back)) {
    if (!message.is_leader || message.group != group.id) continue;
    const size_t end = message.text.find(kEnd);
    return SaveJob(group, std::move(writer), message.text.substr(0, end),
                   message.text.substr(end + 1));
  }
  throw CheckpointError({.what = "no rank of this node leads the save",
                         .where = "save_state",
                         .hint = "start the ranks of each node with LOCAL_RANK from 0 on"});
}

std::string SaveJob::write_own_files() const {
  std::vector<files::FileRecord> records;
  for (const SnapshotFile& file : snapshot_.files()) {
    records.push_back(write_snapshot_file(directory_, file));
  }
  return files::records_text(records);
}

void SaveJob::abandon(Communicator& ranks) {
  writer_.reset();
  ranks.barrier();
}

void SaveJob::write(Communicator& ranks) {
  Message own{.group = group_.id, .is_leader = group_.is_leader};
  const std::exception_ptr unwritten = caught([&] { own.text = write_own_files(); });
  std::vector<std::string> records(static_cast<size_t>(ranks.world_size()));
  const std::vector<Message> all = exchange(ranks, own, unwritten, [&] { writer_.reset(); });
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].group == group_.id) records[rank] = all[rank].text;
  }
  const std::exception_ptr uncommitted = caught([&] {
    if (writer_) commit(records);
  });
  writer_.reset();
  agree(ranks, uncommitted);
}

void SaveJob::commit(const std::vector<std::string>& records_of_ranks) {
  files::Manifest manifest{.library_version = std::string(library_version()),
                           .world_size = static_cast<int64_t>(records_of_ranks.size()),
                           .step = step_,
                           .state = snapshot_.facts()};
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
  const files::CommitReport report = writer_->commit(std::move(manifest));
  for (const std::string& sentence : report.left_over) log(LogLevel::kWarning, sentence);
}

}  // namespace accelerate::checkpoint
