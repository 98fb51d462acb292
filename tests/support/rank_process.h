// One forked rank, seen from the test program and from inside.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/rank_report.h"

namespace accelerate::test {

// How a rank left, as exit_code_of() tells it. A rank ended by signal s has 128 + s.
inline constexpr int kExitPassed = 0;
inline constexpr int kExitFailed = 1;  // an EXPECT or ASSERT failed
inline constexpr int kExitUsageError = 10;
inline constexpr int kExitConfigError = 11;
inline constexpr int kExitCommError = 12;
inline constexpr int kExitDataError = 13;
inline constexpr int kExitCheckpointError = 14;
inline constexpr int kExitOtherException = 15;

// A number that each rank raises and everybody sees; lives in memory shared by the forked ranks.
struct SharedStage {
  std::atomic<int> value{0};
};

// What the body of a rank is given.
class Rank {
 public:
  Rank(int rank, int world_size, SharedStage* stages, ReportWriter* reports)
      : rank(rank), world_size(world_size), stages_(stages), reports_(reports) {}

  const int rank;
  const int world_size;

  // Tells the test program and the other ranks how far this rank is, without any communication of
  // the library under test.
  void reach(int stage) const { stages_[rank].value.store(stage); }
  int stage_of(int other) const { return stages_[other].value.load(); }
  // Blocks until `other` has reached `stage`; the deadline of the test is the limit.
  void wait_for(int other, int stage) const;
  // Hands `bytes` to the test program; see Ranks::run_collect().
  void give(std::string bytes) const;

 private:
  SharedStage* stages_;
  ReportWriter* reports_;
};

using RankBody = std::function<void(const Rank&)>;

// What every rank of this program does first, with the seed of that rank: the same one each time
// the test runs, another one for each rank and each group of ranks of the test. Set before ranks
// are started; null: nothing.
void set_rank_setup(void (*setup)(uint64_t seed));
using Environment = std::vector<std::pair<std::string, std::string>>;

// A child process that runs one rank's body. The test program must have no other thread and must
// not have run any code of libtorch: its thread pools do not survive fork().
class RankProcess {
 public:
  // Forks. In the child: own process group, dies with the test program, standard output and error
  // go to a file in memory, `environment` is set (an empty value unsets a name).
  RankProcess(int rank, int world_size, SharedStage* stages, const Environment& environment,
              uint64_t seed, const RankBody& body);
  // Kills the whole process group and takes the exit status.
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Sends `signal` to the rank; nothing happens if it has left already.
  void send(int signal);
  // Whether the rank has left; does not block.
  bool has_left();
  // Only after has_left().
  int exit_code() const { return exit_code_; }
  std::string output() const { return read_all(output_fd_); }
  std::vector<Report> reports() const { return read_reports(report_fd_); }

 private:
  pid_t pid_ = -1;
  int output_fd_ = -1;
  int report_fd_ = -1;
  bool left_ = false;
  int exit_code_ = -1;
};

}  // namespace accelerate::test
