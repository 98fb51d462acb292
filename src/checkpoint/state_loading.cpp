#include "checkpoint/state_loading.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "checkpoint/state_agreement.h"
#include "checkpoint/state_names.h"
#include "files/checkpoint_directory.h"
#include "files/checkpoint_names.h"
#include "files/verification.h"

namespace accelerate::checkpoint {
namespace {

using files::CheckpointEntry;
using std::filesystem::path;

constexpr const char* kSeries = "checkpoint";

bool has_manifest(const path& directory) {
  std::error_code error;
  return std::filesystem::exists(directory / files::kManifestName, error);
}

// Of one series, largest number first.
std::vector<CheckpointEntry> newest_first(const path& folder, const std::string& series) {
  std::vector<CheckpointEntry> entries;
  for (CheckpointEntry& entry : files::list_checkpoints(folder)) {
    const auto name = files::series_name(entry.name);
    if (name && name->series == series) entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, std::greater<>(), &CheckpointEntry::number);
  return entries;
}

std::vector<path> numbered_candidates(const path& folder) {
  std::error_code error;
  const bool exists = std::filesystem::is_directory(folder, error);
  const auto entries = exists ? newest_first(folder, kSeries) : std::vector<CheckpointEntry>{};
  std::vector<path> complete;
  std::vector<std::string> problems;
  for (const CheckpointEntry& entry : entries) {
    if (entry.is_complete()) {
      complete.push_back(entry.directory);
    } else {
      problems.push_back(entry.name + ": " + entry.problem);
    }
  }
  if (!complete.empty()) return complete;
  for (const CheckpointEntry& entry : entries) {
    if (!has_manifest(entry.directory)) return {entry.directory};
  }
  throw CheckpointError({.what = problems.empty()
                                     ? "there is no checkpoint to load"
                                     : "there is no complete checkpoint: " + name_list(problems),
                         .where = folder.string(),
                         .hint = "name a directory, or begin without load_state()"});
}

// What is wrong with the data of a checkpoint; throws CheckpointError.
void require_undamaged(const path& directory, bool verify_data) {
  if (!has_manifest(directory) && std::filesystem::is_directory(directory)) return;
  const files::CheckpointDirectory complete(directory);
  const auto findings = files::verify(complete.path(), {.data_checksums = verify_data});
  if (findings.empty()) return;
  std::vector<std::string> texts;
  for (const files::Finding& finding : findings) texts.push_back(finding.text());
  throw CheckpointError({.what = "the checkpoint is damaged: " + name_list(texts),
                         .where = complete.path().string(),
                         .hint = "load another one, or pass {.fall_back = true}"});
}

std::string to_lines(const std::vector<path>& directories) {
  std::string text;
  for (const path& directory : directories) text += directory.string() + "\n";
  return text;
}

std::vector<path> from_lines(const std::string& text) {
  std::istringstream lines(text);
  std::vector<path> directories;
  for (std::string line; std::getline(lines, line);) directories.emplace_back(line);
  return directories;
}

// Those of this rank's leader that every other leader has too, under the same name. Collective.
std::vector<path> agreed_candidates(Communicator& ranks, const SaveGroup& group,
                                    const LoadSteps& steps) {
  std::string own;
  const std::exception_ptr problem = caught([&] {
    if (group.is_leader) own = to_lines(steps.candidates());
  });
  agree(ranks, problem);
  const std::string group_line = group.is_leader ? std::to_string(group.id) + "\n" : "";
  std::vector<path> result;
  std::vector<std::vector<path>> of_leaders;
  for (const std::string& text : ranks.all_gather_bytes(group_line + own)) {
    if (text.empty()) continue;
    const size_t end = text.find('\n');
    of_leaders.push_back(from_lines(text.substr(end + 1)));
    if (std::stoi(text.substr(0, end)) == group.id) result = of_leaders.back();
  }
  std::erase_if(result, [&](const path& directory) {
    return !std::ranges::all_of(of_leaders, [&](const std::vector<path>& others) {
      return std::ranges::any_of(
          others, [&](const path& other) { return other.filename() == directory.filename(); });
    });
  });
  if (result.empty()) {
    throw CheckpointError({.what = "the nodes have no checkpoint in common",
                           .where = "load_state",
                           .hint = "name a directory that all of them have"});
  }
  return result;
}

// Collective.
path first_undamaged(Communicator& ranks, const SaveGroup& group,
                     const std::vector<path>& candidates, const LoadOptions& options) {
  for (size_t i = 0;; ++i) {
    try {
      agree(ranks, caught([&] {
              if (group.is_leader) require_undamaged(candidates[i], options.verify_data);
            }));
      return candidates[i];
    } catch (const CheckpointError& error) {
      if (!options.fall_back || i + 1 == candidates.size()) throw;
      if (ranks.rank() == 0) {
        log(LogLevel::kWarning, "passing over " + candidates[i].string() + ": " + error.message());
      }
    }
  }
}

// All that does not fit, part by part, as one error.
void check_all(const StateParts& parts, StateReader& reader) {
  std::vector<CheckpointError> errors;
  for (const auto& part : parts) {
    try {
      part->check(reader);
    } catch (const CheckpointError& error) {
      errors.push_back(error);
    } catch (const nlohmann::json::exception& error) {
      errors.push_back(CheckpointError(
          {.what = std::string("the state in the manifest is not what this version reads: ") +
                   error.what(),
           .where = reader.where(files::kManifestName),
           .hint = "load it with the version of the library that saved it"}));
    }
  }
  if (errors.empty()) return;
  if (errors.size() == 1) throw errors[0];
  std::string what = errors[0].message();
  for (size_t i = 1; i < errors.size(); ++i) {
    const std::string file = path(errors[i].where()).filename().string();
    what +=
        "; " + (errors[i].where() == errors[0].where() ? "" : file + ": ") + errors[i].message();
  }
  throw CheckpointError({.what = what, .where = errors[0].where(), .hint = errors[0].hint()});
}

}  // namespace

std::vector<path> load_candidates(const path& directory, const path& series_folder,
                                  bool fall_back) {
  if (directory.empty()) {
    std::vector<path> all = numbered_candidates(series_folder);
    if (!fall_back) all.resize(1);
    return all;
  }
  const path absolute = std::filesystem::absolute(directory).lexically_normal();
  const path named = absolute.has_filename() ? absolute : absolute.parent_path();
  std::vector<path> all{named};
  const auto own = files::series_name(named.filename().string());
  if (!fall_back || !own) return all;
  for (const CheckpointEntry& entry : newest_first(named.parent_path(), own->series)) {
    if (entry.is_complete() && *entry.number < own->number) all.push_back(entry.directory);
  }
  return all;
}

StateReader load_checkpoint(Communicator& ranks, const SaveGroup& group, const LoadSteps& steps,
                            const LoadOptions& options) {
  const std::vector<path> candidates = agreed_candidates(ranks, group, steps);
  const path directory = first_undamaged(ranks, group, candidates, options);
  std::optional<StateReader> reader;
  StateParts parts;
  agree(ranks, caught([&] {
          reader.emplace(directory, ranks.rank(), ranks.world_size(), options.strict);
          parts = steps.parts(reader->directory());
          check_all(parts, *reader);
        }));
  try {
    agree(ranks, caught([&] {
            for (const auto& part : parts) part->try_apply();
          }));
  } catch (...) {
    for (const auto& part : parts) part->undo();
    throw;
  }
  agree(ranks, caught([&] {
          for (const auto& part : parts) part->apply();
        }));
  return std::move(*reader);
}

}  // namespace accelerate::checkpoint
