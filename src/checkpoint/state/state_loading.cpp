#include "checkpoint/state/state_loading.h"

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "checkpoint/name_list.h"
#include "checkpoint/state/rng_part.h"
#include "checkpoint/state/state_agreement.h"
#include "files/manifest/checkpoint_directory.h"
#include "files/manifest/verification.h"

namespace accelerate::checkpoint {
namespace {

using std::filesystem::path;

// One of the Python library's has no manifest, and nothing in it can be verified. One of ours that
// has lost it is incomplete.
void require_of_python(const path& directory) {
  if (has_rng_file_of_ours(directory)) {
    throw CheckpointError({.what = "the checkpoint is incomplete: it has no manifest.json",
                           .where = directory.string(),
                           .hint = "load another one, or pass {.fall_back = true}"});
  }
  log(LogLevel::kWarning, directory.string() +
                              " has no manifest.json: it is read as a directory "
                              "of the Python library, and nothing is verified");
}

// What is wrong with the data of a checkpoint; throws CheckpointError.
void require_undamaged(const path& directory, bool verify_data) {
  if (is_without_manifest(directory)) return require_of_python(directory);
  const files::CheckpointDirectory complete(directory);
  const auto findings = files::verify(complete.path(), {.data_checksums = verify_data});
  if (findings.empty()) return;
  std::vector<std::string> texts;
  for (const files::Finding& finding : findings) texts.push_back(finding.text());
  throw CheckpointError({.what = "the checkpoint is damaged: " + name_list(texts),
                         .where = complete.path().string(),
                         .hint = "load another one, or pass {.fall_back = true}"});
}

// Collective.
path first_undamaged(Communicator& ranks, const SaveGroup& group,
                     const std::vector<path>& candidates, const LoadOptions& options) {
  for (size_t i = 0;; ++i) {
    try {
      const auto check = [&] {
        if (group.is_leader) require_undamaged(candidates[i], options.verify_data);
      };
      agree(ranks, check, {.takes_long = true});
      return candidates[i];
    } catch (const CheckpointError& error) {  // on all ranks alike
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

// Runs a part of the taking over. What it throws says that the training has been changed in part;
// nothing is wrong with the checkpoint then.
void take_over(const path& directory, const std::function<void()>& step) {
  try {
    step();
  } catch (const CommError&) {
    throw;
  } catch (...) {
    throw CheckpointError(
        {.what = "the state was read but could not be applied: " +
                 comm::text_of(std::current_exception()),
         .where = directory.string(),
         .hint = "some objects have the loaded state already, others do not: load again, or end "
                 "the program"});
  }
}

}  // namespace

std::optional<StateReader> load_checkpoint(Communicator& ranks, const SaveGroup& group,
                                           const LoadSteps& steps, const LoadOptions& options) {
  const std::vector<path> candidates = agreed_candidates(ranks, group, steps.candidates);
  if (candidates.empty()) return std::nullopt;
  const path directory = first_undamaged(ranks, group, candidates, options);
  std::optional<StateReader> reader;
  StateParts parts;
  // Hooks may talk to other ranks; what only reads may take its time.
  agree(ranks, [&] {
    reader.emplace(directory, ranks.rank(), ranks.world_size(), options.strict);
    parts = steps.parts(reader->directory());
  });
  agree(ranks, [&] { check_all(parts, *reader); }, {.takes_long = true});
  try {
    agree(ranks, [&] {
      for (const auto& part : parts) part->try_apply();
    });
  } catch (...) {
    for (const auto& part : parts) part->undo();
    throw;
  }
  if (steps.begin) steps.begin(directory);
  const auto together = [&](const std::function<void()>& step) {
    agree(ranks, [&] { take_over(directory, step); });
  };
  for (const auto& part : parts) part->exchange(together);
  const auto apply = [&] {
    take_over(directory, [&] {
      for (const auto& part : parts) part->apply();
    });
  };
  agree(ranks, apply, {.takes_long = true});
  return reader;
}

}  // namespace accelerate::checkpoint
