// Saves checkpoints, for run_faults.py: two saves with rotation, the first over a checkpoint of the
// same name, in a folder where a crashed save has left something; then one without rotation, in a
// folder that has to be made.
//
//   save_scenario prepare FOLDER    what is there before
//   save_scenario save FOLDER       under faults; prints the name of each checkpoint once it is
//   saved save_scenario check FOLDER      whether all promises were kept; see run_faults.py for its
//   variables
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "accelerate/errors.h"
#include "files/manifest/checkpoint_directory.h"
#include "files/manifest/checkpoint_names.h"
#include "files/manifest/checkpoint_writer.h"

namespace {

using namespace accelerate::files;  // NOLINT(google-build-using-namespace): a small test program
using accelerate::CheckpointError;

constexpr int kCheckpointErrorCode = 3;
constexpr int kLeftOverCode = 4;
constexpr const char* kDeep = "deep/er";
constexpr const char* kLeftover = ".checkpoint_3.tmp-0123456789abcdef";  // of an earlier crash

CommitReport save(const std::filesystem::path& directory, int64_t step,
                  const WriterOptions& options = {}) {
  CheckpointWriter writer(directory, options);
  Manifest manifest{.library_version = "0.1.0", .world_size = 1, .step = step};
  for (const char* name : {"model.safetensors", "optimizer.bin"}) {
    DurableFile file = writer.create(name);
    for (const char* tensor : {"weight", "bias"}) {
      const std::string text(150'000, static_cast<char>('a' + step % 26));
      file.begin_part(tensor);
      file.write(std::as_bytes(std::span(text)));
    }
    manifest.files.push_back(file.close());
  }
  return writer.commit(std::move(manifest));
}

void prepare(const std::filesystem::path& folder) {
  for (const int64_t step : {1, 2, 3}) save(folder / numbered_name(step), step);
  const auto leftover = folder / kLeftover;
  std::filesystem::create_directory(leftover);
  std::ofstream(leftover / "model.safetensors") << "half of a mod";
  std::ofstream(folder / ".checkpoint.lock") << "process 1 on a machine that was switched off\n";
}

int save_all(const std::filesystem::path& folder) {
  int code = 0;
  const auto save_one = [&](const std::string& name, int64_t step, const WriterOptions& options) {
    const CommitReport report = save(folder / name, step, options);
    std::printf("%s%s\n", name.c_str(), report.left_over.empty() ? "" : " untidy");
    std::fflush(stdout);
    for (const std::string& sentence : report.left_over) {
      std::fprintf(stderr, "left over: %s\n", sentence.c_str());
      code = kLeftOverCode;
    }
  };
  save_one("checkpoint_3", 33, {.total_limit = 2});
  save_one("checkpoint_4", 44, {.total_limit = 2});
  save_one(std::string(kDeep) + "/best", 44, {});
  // Something may go wrong after the last save too: what was saved has to be there.
  std::printf("%zu\n", list_checkpoints(folder / kDeep).size());
  return code;
}

std::string variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

[[noreturn]] void broken(const std::string& promise) {
  std::cout << promise << "\n";
  std::exit(1);
}

void require(bool holds, const std::string& promise) {
  if (!holds) broken(promise);
}

// The steps of all checkpoints, by name. Each of them must be complete to the last byte.
std::map<std::string, int64_t> steps_in(const std::filesystem::path& folder) {
  std::map<std::string, int64_t> steps;
  if (!std::filesystem::exists(folder)) return steps;
  for (const CheckpointEntry& entry : list_checkpoints(folder)) {
    require(entry.is_complete(), entry.name + " is visible but not complete: " + entry.problem);
    for (const Finding& finding : verify(entry.directory))
      broken(entry.name + ", " + finding.text());
    steps[entry.name] = entry.manifest->step;
  }
  return steps;
}

std::vector<std::string> hidden_names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".")) names.push_back(name);
  }
  return names;
}

using Steps = std::map<std::string, int64_t>;

// What the folder may hold when so many saves have returned. The save that was under way may have
// come through if the process died; it has not if it failed.
void check_steps(const Steps& steps, const Steps& deep, size_t saved, bool failed) {
  const Steps best{{"best", 44}};
  const bool may_be_there = saved >= 3 || (saved == 2 && !failed);
  require(saved < 3 || deep == best, "best is gone");
  require(deep.empty() || (may_be_there && deep == best), "best was not saved and is there");
  const Steps before{{"checkpoint_1", 1}, {"checkpoint_2", 2}, {"checkpoint_3", 3}};
  const Steps replaced{{"checkpoint_1", 1}, {"checkpoint_2", 2}, {"checkpoint_3", 33}};
  const Steps first{{"checkpoint_2", 2}, {"checkpoint_3", 33}};
  const Steps added{{"checkpoint_2", 2}, {"checkpoint_3", 33}, {"checkpoint_4", 44}};
  const Steps second{{"checkpoint_3", 33}, {"checkpoint_4", 44}};
  // Old ones that could not be deleted are there still, whatever was saved since.
  const Steps kept{
      {"checkpoint_1", 1}, {"checkpoint_2", 2}, {"checkpoint_3", 33}, {"checkpoint_4", 44}};
  std::vector<Steps> allowed;
  if (saved == 0) allowed = {before};
  if (saved == 0 && !failed) allowed = {before, replaced, first};
  if (saved == 1) allowed = {first, replaced};
  if (saved == 1 && !failed) allowed = {first, replaced, added, second, kept};
  if (saved >= 2) allowed = {second, added, kept};
  for (const Steps& one : allowed) {
    if (steps == one) return;
  }
  std::string text = "after " + std::to_string(saved) + " saves the folder holds";
  for (const auto& [name, step] : steps)
    text += " " + name + " (step " + std::to_string(step) + ")";
  broken(text);
}

void check(const std::filesystem::path& folder) {
  const std::string outcome = variable("FAULTS_OUTCOME");
  const std::string hit = variable("FAULTS_HIT");
  std::istringstream output(variable("FAULTS_OUTPUT"));
  size_t saved = 0;
  bool untidy = false;
  for (std::string line; std::getline(output, line); ++saved) {
    untidy = untidy || line.ends_with(" untidy");
  }

  const auto newest = newest_complete(folder, {.data_checksums = true});
  require(newest.has_value(), "no complete checkpoint is left");
  check_steps(steps_in(folder), steps_in(folder / kDeep), saved, outcome == "failed");
  require(outcome != "saved" || saved == 4, "a save that ended well did not say so");
  require(outcome != "untidy" || untidy, "a save that left something did not say so");
  if (outcome != "killed" && !untidy) {
    for (const std::string& name : hidden_names(folder)) {
      // The lock file is harmless, and stays where locking or removing it is what went wrong.
      if (name.ends_with(".lock") && hit.ends_with("/" + name)) continue;
      // Not ours, if the save failed before it got to it.
      if (name == kLeftover && outcome == "failed" && saved == 0) continue;
      broken("left behind: " + name);
    }
  }
  // Whatever happened, the next save works and leaves the folder tidy.
  save(folder / "checkpoint_5", 5, {.total_limit = 1});
  save(folder / kDeep / "best", 5);
  for (const std::string& name : hidden_names(folder)) broken("the next save left " + name);
  require(steps_in(folder) == Steps{{"checkpoint_5", 5}},
          "the next save did not delete the old ones");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string command = argv[1];
  try {
    if (command == "prepare") return prepare(argv[2]), 0;
    if (command == "save") return save_all(argv[2]);
    if (command == "check") return check(argv[2]), 0;
  } catch (const CheckpointError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return kCheckpointErrorCode;
  }
  return 2;
}
