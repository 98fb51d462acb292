// How one attempt of a job ended.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace accelerate::launch {

enum class WorkerFate {
  kSucceeded,  // exited with status 0
  kFailed,     // ended on its own with another status or by a signal
  kStopped,    // ended because the launcher asked it to
  kKilled,     // did not end when asked, and was killed after the grace period
};

struct WorkerEnd {
  int rank = 0;
  std::string host{};  // "": not told
  pid_t pid = 0;
  int wait_status = 0;                 // as waitpid gives it
  std::chrono::milliseconds after{0};  // since the attempt began
  WorkerFate fate = WorkerFate::kSucceeded;
  bool unasked = false;                  // it ended before its launcher had asked anyone to stop
  std::string exception{};               // what it said on its way out, see LineTail
  std::string error{};                   // what it told the launcher alone, see accelerate::run()
  std::deque<std::string> last_lines{};  // of both streams, oldest first
};

inline constexpr const char* kRanks = "rank";

struct LaunchOutcome {
  std::vector<WorkerEnd> ends{};       // one for each worker, in the order in which they ended
  int world_size = 0;                  // 0: as many as ended
  std::string workers = kRanks;        // what they are called: rank, or the program that runs them
  std::string program{};               // what the ranks run; "": not told
  std::vector<std::string> led_to{};   // by rank: the machine that ssh was to reach
  bool has_agents = false;             // launchers behind ssh or srun report what happens there
  std::optional<int> stop_signal{};    // the launcher was told to stop by this signal
  std::string lost_machine{};          // a machine went silent: which and since when
  std::chrono::milliseconds grace{0};  // how long the others were given
  bool repeat_last_lines = true;       // of the first failure, in the report

  // The worker that failed before all others, or nothing. Of those that nobody had asked to stop,
  // one that only lost the connection to another is not the first if there is a better explanation.
  const WorkerEnd* first_failure() const;

  bool succeeded() const;

  // 0 if every worker succeeded and nobody told the launcher to stop. kLostMachineExitCode if a
  // machine was lost; after a failure the status of the first that failed, or 128 plus its signal;
  // after a stop signal the status other than 0 with which all ranks exited, else 128 plus the
  // signal, also if the workers ended well.
  int exit_code() const;
};

constexpr int kLostMachineExitCode = 75;  // EX_TEMPFAIL: trying again may help

}  // namespace accelerate::launch
