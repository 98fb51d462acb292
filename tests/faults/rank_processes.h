// Ranks as processes, forked from a program that has libtorch loaded and has run none of it: what a
// rank costs is then its own work alone.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace faults {

struct RankEnd {
  int status = 0;      // as of waitpid()
  bool hung = false;   // it was killed at the deadline
  std::string output;  // standard output and error

  bool was_killed() const;  // by itself or by the fault, not at the deadline
  // -1 if it did not exit.
  int exit_code() const;
};

enum class Nodes {
  kOne,      // all ranks are on one
  kOneEach,  // each rank is alone on its own
};

// Forks `world_size` ranks that know each other by the usual variables, runs `body` in each and
// waits for all of them, at most until `deadline` has passed; then those that are left are killed.
// `body` gives the exit code. What rank r prints goes to the file <output>.<r>.
std::vector<RankEnd> run_ranks(int world_size, Nodes nodes, const std::filesystem::path& output,
                               std::chrono::seconds deadline,
                               const std::function<int(int rank)>& body);

// A process of its own that ends with what `body` gives, and dies with this one.
int fork_process(const std::function<int()>& body);

std::string contents_of(const std::filesystem::path& file);

}  // namespace faults
