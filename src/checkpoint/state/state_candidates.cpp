#include "checkpoint/state/state_candidates.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "checkpoint/name_list.h"
#include "checkpoint/state/state_agreement.h"
#include "checkpoint/state/state_reader.h"
#include "files/manifest/checkpoint_directory.h"
#include "files/manifest/checkpoint_names.h"

namespace accelerate::checkpoint {
namespace {

using files::CheckpointEntry;
using std::filesystem::path;

std::string save_id_of(const files::Manifest& manifest) {
  const auto found = manifest.state.find(kSaveId);
  return found != manifest.state.end() && found->is_string() ? found->get<std::string>() : "";
}

Candidate candidate_of(const CheckpointEntry& entry) {
  return {.directory = entry.directory,
          .save_id = entry.manifest ? save_id_of(*entry.manifest) : ""};
}

// What is wrong with a checkpoint that was asked for is found, and said, when it is read.
Candidate candidate_at(const path& directory) {
  try {
    const files::CheckpointDirectory complete(directory);
    return {.directory = directory, .save_id = save_id_of(complete.manifest())};
  } catch (const CheckpointError&) {
    return {.directory = directory};
  }
}

// Of one series, largest number first.
std::vector<CheckpointEntry> newest_first(const path& folder, std::string_view series) {
  std::vector<CheckpointEntry> entries;
  for (CheckpointEntry& entry : files::list_checkpoints(folder)) {
    const auto name = files::series_name(entry.name);
    if (name && name->series == series) entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, std::greater<>(), &CheckpointEntry::number);
  return entries;
}

std::vector<Candidate> numbered_candidates(const path& folder, bool if_any) {
  std::error_code error;
  const bool exists = std::filesystem::is_directory(folder, error);
  const auto entries =
      exists ? newest_first(folder, files::kSeries) : std::vector<CheckpointEntry>{};
  std::vector<Candidate> complete;
  std::vector<std::string> problems;
  std::vector<const CheckpointEntry*> passed_over;  // newer than the newest that is complete
  for (const CheckpointEntry& entry : entries) {
    if (entry.is_complete()) {
      complete.push_back(candidate_of(entry));
    } else {
      problems.push_back(entry.name + ": " + entry.problem);
      if (complete.empty()) passed_over.push_back(&entry);
    }
  }
  if (!complete.empty()) {
    for (const CheckpointEntry* entry : passed_over) {
      log(LogLevel::kWarning, "passing over " + entry->directory.string() +
                                  ", which is newer but not complete: " + entry->problem);
    }
    return complete;
  }
  for (const CheckpointEntry& entry : entries) {
    if (is_without_manifest(entry.directory)) return {candidate_of(entry)};
  }
  if (if_any && problems.empty()) return {};
  throw CheckpointError(
      {.what = problems.empty() ? "there is no checkpoint to load"
                                : "there is no complete checkpoint: " + name_list(problems),
       .where = folder.string(),
       .hint = "name a directory, or pass {.if_any = true} to begin without one"});
}

bool is_same_checkpoint(const Candidate& one, const Candidate& other) {
  if (one.directory.filename() != other.directory.filename()) return false;
  return one.save_id.empty() || other.save_id.empty() || one.save_id == other.save_id;
}

// What the leader of a group tells: the group, then directory and id of each candidate.
std::string to_text(int group, const std::vector<Candidate>& candidates) {
  std::vector<std::string> fields{std::to_string(group)};
  for (const Candidate& candidate : candidates) {
    fields.push_back(candidate.directory.string());
    fields.push_back(candidate.save_id);
  }
  return comm::to_fields(fields);
}

std::vector<Candidate> from_text(const std::vector<std::string>& fields) {
  std::vector<Candidate> candidates;
  for (size_t i = 1; i + 1 < fields.size(); i += 2) {
    candidates.push_back({.directory = fields[i], .save_id = fields[i + 1]});
  }
  return candidates;
}

}  // namespace

std::vector<Candidate> load_candidates(const path& directory, const path& series_folder,
                                       const LoadOptions& options) {
  if (directory.empty()) return numbered_candidates(series_folder, options.if_any);
  const path absolute = std::filesystem::absolute(directory).lexically_normal();
  const path named = absolute.has_filename() ? absolute : absolute.parent_path();
  if (options.if_any && !std::filesystem::exists(named)) return {};
  std::vector<Candidate> all{candidate_at(named)};
  const auto own = files::series_name(named.filename().string());
  if (!options.fall_back || !own) return all;
  for (const CheckpointEntry& entry : newest_first(named.parent_path(), own->series)) {
    if (entry.is_complete() && *entry.number < own->number) all.push_back(candidate_of(entry));
  }
  return all;
}

std::vector<path> agreed_candidates(Communicator& ranks, const SaveGroup& group,
                                    const std::function<std::vector<Candidate>()>& own) {
  std::string text;
  const auto find = [&] {
    if (group.is_leader) text = to_text(group.id, own());
  };
  agree(ranks, find, {.takes_long = true});
  std::vector<std::vector<Candidate>> of_leaders;
  std::vector<Candidate> of_own_leader;
  for (const std::string& fields : ranks.all_gather_bytes(text)) {
    if (fields.empty()) continue;
    const std::vector<std::string> of_leader = comm::from_fields(fields);
    of_leaders.push_back(from_text(of_leader));
    if (of_leader[0] == std::to_string(group.id)) of_own_leader = of_leaders.back();
  }
  if (std::ranges::all_of(of_leaders, [](const auto& found) { return found.empty(); })) return {};
  std::vector<path> common;
  for (const Candidate& candidate : of_own_leader) {
    const bool all_have_it = std::ranges::all_of(of_leaders, [&](const auto& others) {
      return std::ranges::any_of(
          others, [&](const Candidate& other) { return is_same_checkpoint(candidate, other); });
    });
    if (all_have_it) common.push_back(candidate.directory);
  }
  agree(ranks, [&] {
    if (!common.empty()) return;
    throw CheckpointError({.what = "the nodes have no checkpoint of one save in common",
                           .where = "load_state",
                           .hint = "name a directory that all of them have"});
  });
  return common;
}

}  // namespace accelerate::checkpoint
