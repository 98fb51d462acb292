// Runs of fault_program that are disturbed, and the one that is not.
//
// What is drawn comes from a fixed seed; ACCELERATE_KILL_SEED=N draws other faults, and
// ACCELERATE_FAULT_ROUNDS=N makes N rounds in place of a few.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "launch/killing.h"

namespace accelerate::test {

inline int fault_rounds(int in_default_run) {
  const char* named = std::getenv("ACCELERATE_FAULT_ROUNDS");
  return named != nullptr ? std::max(std::atoi(named), 1) : in_default_run;
}

inline std::string bytes_of_file(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The bytes of all state of a checkpoint: weights, optimizer, schedule, random numbers, loader. The
// manifest differs from save to save.
inline std::map<std::string, std::string> state_in(const std::filesystem::path& checkpoint) {
  std::map<std::string, std::string> state;
  std::error_code none;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(checkpoint, none)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && name != "manifest.json") {
      state[name] = bytes_of_file(entry.path());
    }
  }
  return state;
}

// Names of files whose bytes differ, or that one side lacks.
inline std::set<std::string> differing_files(const std::map<std::string, std::string>& one,
                                             const std::map<std::string, std::string>& other) {
  std::set<std::string> names;
  for (const auto& [name, bytes] : one) {
    const auto found = other.find(name);
    if (found == other.end() || found->second != bytes) names.insert(name);
  }
  for (const auto& [name, bytes] : other) {
    if (one.count(name) == 0) names.insert(name);
  }
  return names;
}

// By step: the samples that it used in the last attempt that made it.
inline std::map<long, std::string> samples_by_step(const std::string& out) {
  std::map<long, std::string> samples;
  std::map<long, int> made_in;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    int restart = 0;
    long step = 0;
    if (std::sscanf(line.c_str(), "restart %d step %ld samples", &restart, &step) != 2) continue;
    if (made_in.count(step) != 0 && made_in[step] > restart) continue;
    made_in[step] = restart;
    samples[step] = line.substr(line.find("samples"));
  }
  return samples;
}

// The process of `rank` in attempt `restart`, as it has said; 0: it has not.
inline pid_t pid_of_rank(const std::string& out, int rank, int restart) {
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    int who = 0;
    int of = 0;
    int pid = 0;
    int attempt = 0;
    if (std::sscanf(line.c_str(), "rank %d of %d pid %d begins restart %d", &who, &of, &pid,
                    &attempt) == 4 &&
        who == rank && attempt == restart) {
      return pid;
    }
  }
  return 0;
}

class DisturbedTraining : public Killing {
 protected:
  struct Undisturbed {
    std::map<std::string, std::string> state{};
    std::map<long, std::string> samples{};
    std::string out{};
  };

  std::filesystem::path project(const std::string& name) const { return folder_.path() / name; }

  std::unique_ptr<LauncherRun> start_training(const std::string& name, int ranks, int restarts) {
    return start({"launch", "--cpu", "--num_processes", std::to_string(ranks), "--max_restarts",
                  std::to_string(restarts), FAULT_PROGRAM, project(name).string()});
  }
  // On `ranks` ranks; made once for each number.
  const Undisturbed& undisturbed(int ranks) {
    Undisturbed& known = undisturbed_[ranks];
    if (!known.state.empty()) return known;
    const std::string name = "undisturbed" + std::to_string(ranks);
    const RunResult result = start_training(name, ranks, 0)->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    known = {.state = state_in(project(name) / "final"),
             .samples = samples_by_step(result.out),
             .out = result.out};
    EXPECT_EQ(known.samples.size(), 40U);
    EXPECT_FALSE(known.state.empty());
    return known;
  }
  void expect_undisturbed(const RunResult& result, const std::string& name, int ranks) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(differing_files(state_in(project(name) / "final"), undisturbed(ranks).state),
                testing::IsEmpty());
    EXPECT_EQ(samples_by_step(result.out), undisturbed(ranks).samples);
    expect_no_process_left();
    for (const auto& entry : std::filesystem::directory_iterator(project(name) / "checkpoints")) {
      const std::string left = entry.path().filename().string();
      EXPECT_THAT(left, testing::StartsWith("checkpoint_"));
    }
  }

  // Of all tests of this program.
  static inline std::map<int, Undisturbed> undisturbed_;
};

}  // namespace accelerate::test
