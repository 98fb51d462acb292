#include "launch/output/failure_report.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <tuple>

#include "base/word_list.h"

namespace accelerate::launch {
namespace {

constexpr int kSshFailed = 255;
constexpr int kCannotExecute = 126;
constexpr int kShellNotFound = 127;

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

// "2", "0 and 2", "0, 2 and 3", "0 to 6", "0 to 41 and 43 to 99". Runs of more than three are cut
// short.
std::string describe_numbers(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    const bool is_long = end - begin > 3;
    if (is_long) {
      parts.push_back(std::to_string(numbers[begin]) + " to " + std::to_string(numbers[end - 1]));
    }
    for (size_t i = begin; !is_long && i < end; ++i) parts.push_back(std::to_string(numbers[i]));
    begin = end;
  }
  return listed(parts);
}

std::string describe_ranks(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + describe_numbers(ranks);
}

std::string were(size_t count) { return count == 1 ? " was " : " were "; }

std::vector<int> ranks_with(const LaunchOutcome& outcome, WorkerFate fate) {
  std::vector<int> ranks;
  for (const WorkerEnd& end : outcome.ends) {
    if (end.fate == fate) ranks.push_back(end.rank);
  }
  return ranks;
}

// The status with which every worker exited by itself, if it is the same and not 0: a program that
// saves when it is told to stop says so by a code of its own.
std::optional<int> agreed_status(const std::vector<WorkerEnd>& ends) {
  if (ends.empty()) return std::nullopt;
  const int status = ends.front().wait_status;
  const bool agreed = std::all_of(ends.begin(), ends.end(),
                                  [&](const WorkerEnd& end) { return end.wait_status == status; });
  if (!agreed || !WIFEXITED(status) || WEXITSTATUS(status) == 0) return std::nullopt;
  return WEXITSTATUS(status);
}

void append_others(std::string& report, const LaunchOutcome& outcome) {
  const std::vector<int> succeeded = ranks_with(outcome, WorkerFate::kSucceeded);
  const std::vector<int> stopped = ranks_with(outcome, WorkerFate::kStopped);
  const std::vector<int> killed = ranks_with(outcome, WorkerFate::kKilled);
  if (!succeeded.empty()) {
    report += "  " + describe_ranks(succeeded) + (outcome.stop_signal ? "" : " had") +
              " ended without error\n";
  }
  if (!stopped.empty()) {
    const auto status = agreed_status(outcome.ends);
    report += "  " + describe_ranks(stopped) +
              (status && outcome.stop_signal ? " exited with status " + std::to_string(*status)
                                             : were(stopped.size()) + "stopped") +
              "\n";
  }
  if (!killed.empty()) {
    report += "  " + describe_ranks(killed) + " did not stop within " +
              describe_duration(outcome.grace) + " and" + were(killed.size()) + "killed\n";
  }
}

// Those that failed after the first, each way to end on one line: hundreds fail alike.
void append_later_failures(std::string& report, const LaunchOutcome& outcome) {
  const bool has_cause = outcome.lost_machine.empty();
  const WorkerEnd* first = has_cause ? outcome.first_failure() : nullptr;
  std::vector<const WorkerEnd*> failed;
  for (const WorkerEnd& end : outcome.ends) {
    if (end.fate == WorkerFate::kFailed && &end != first) failed.push_back(&end);
  }
  while (!failed.empty()) {
    const WorkerEnd& next = *failed.front();
    std::vector<int> ranks;
    for (const WorkerEnd* end : failed) {
      if (end->wait_status == next.wait_status) ranks.push_back(end->rank);
    }
    report += "  then " +
              (outcome.workers == kRanks ? describe_ranks(ranks)
                                         : outcome.workers + " " + describe_numbers(ranks)) +
              " " + describe_status(next.wait_status);
    if (first != nullptr) {
      report +=
          ", " +
          describe_duration(std::max(next.after - first->after, std::chrono::milliseconds(0))) +
          " later";
    }
    report += "\n";
    std::erase_if(failed,
                  [&](const WorkerEnd* end) { return end->wait_status == next.wait_status; });
  }
}

// "rank 1 of 3", "mpirun".
std::string describe_worker(const LaunchOutcome& outcome, int rank) {
  const size_t all =
      outcome.world_size > 0 ? static_cast<size_t>(outcome.world_size) : outcome.ends.size();
  if (outcome.workers != kRanks && all == 1) return outcome.workers;
  const auto place = static_cast<size_t>(rank);
  return outcome.workers + " " + std::to_string(rank) + " of " + std::to_string(all) +
         (place < outcome.led_to.size() ? " (" + outcome.led_to[place] + ")" : "");
}

std::string first_line(const LaunchOutcome& outcome, const WorkerEnd& first) {
  return "error: " + describe_worker(outcome, first.rank) +
         (first.host.empty() ? "" : " on " + first.host) + " " +
         describe_status(first.wait_status) + " after " + describe_duration(first.after) + " (" +
         (outcome.program.empty() ? "" : outcome.program + ", ") + "pid " +
         std::to_string(first.pid) + ")\n";
}

// What a worker said last; an error of the library may have lines of its own for place and hint.
std::string exception_line(const WorkerEnd& end) {
  const std::string& said = end.error.empty() ? end.exception : end.error;
  if (said.empty()) return "";
  std::string line = "  it said: ";
  for (const char c : said) line += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return line + "\n";
}

// Without the rank: what several ranks say alike.
std::string_view without_rank(std::string_view error) {
  const size_t end = error.find("] ");
  return error.starts_with("[rank ") && end != error.npos ? error.substr(end + 2) : error;
}

// Whether launchers on the machines have said all that there is to say, through ssh or srun. What
// these cannot do themselves, or could not start, nobody has told.
bool is_told_already(const LaunchOutcome& outcome) {
  return outcome.has_agents &&
         std::all_of(outcome.ends.begin(), outcome.ends.end(), [](const WorkerEnd& end) {
           if (!WIFEXITED(end.wait_status)) return false;
           const int status = WEXITSTATUS(end.wait_status);
           return status != kSshFailed && status != kCannotExecute && status != kShellNotFound;
         });
}

// What other ranks told the launcher alone, each text once: not what the first failure says too,
// nor that a rank missed a peer.
void append_other_errors(std::string& report, const LaunchOutcome& outcome) {
  const WorkerEnd* first = outcome.lost_machine.empty() ? outcome.first_failure() : nullptr;
  std::vector<std::string_view> told;
  if (first != nullptr) told.push_back(without_rank(first->error));
  for (const WorkerEnd& end : outcome.ends) {
    if (&end == first || end.error.empty() || end.fate == WorkerFate::kSucceeded) continue;
    const std::string_view said = without_rank(end.error);
    const bool is_known = std::find(told.begin(), told.end(), said) != told.end();
    if (is_known || (first != nullptr && only_lost_a_peer(end))) continue;
    told.push_back(said);
    report += "  rank " + std::to_string(end.rank) +
              " said: " + std::string(said.substr(0, said.find('\n'))) + "\n";
  }
}

void append_last_lines(std::string& report, const WorkerEnd& end) {
  if (end.last_lines.empty()) {
    if (end.error.empty()) report += "  it wrote nothing\n";
    return;
  }
  report += end.last_lines.size() == 1 ? "  its last line:\n" : "  its last lines:\n";
  for (const std::string& line : end.last_lines) report += "    | " + line + "\n";
}

}  // namespace

std::string describe_status(int wait_status) {
  if (WIFEXITED(wait_status)) {
    return "exited with status " + std::to_string(WEXITSTATUS(wait_status));
  }
  const int signal = WTERMSIG(wait_status);
  return "was killed by signal " + std::to_string(signal) + " (" + signal_name(signal) + ")";
}

std::string describe_duration(std::chrono::milliseconds duration) {
  char text[64];
  const long long milliseconds = duration.count();
  const long long seconds = milliseconds / 1000;
  if (seconds < 1) {
    std::snprintf(text, sizeof text, "%lld ms", milliseconds);
  } else if (seconds < 10) {
    std::snprintf(text, sizeof text, "%.2f s", static_cast<double>(milliseconds) / 1000);
  } else if (seconds < 60) {
    std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(milliseconds) / 1000);
  } else if (seconds < 3600) {
    std::snprintf(text, sizeof text, "%lld min %02lld s", seconds / 60, seconds % 60);
  } else {
    std::snprintf(text, sizeof text, "%lld h %02lld min", seconds / 3600, seconds / 60 % 60);
  }
  return text;
}

bool only_lost_a_peer(const WorkerEnd& end) {
  constexpr std::array<std::string_view, 6> kWords = {
      "CommError",   "Connection closed by peer", "Connection reset by peer",
      "Broken pipe", "DistNetworkError",          "DistBackendError"};
  const auto says = [&](std::string_view word) {
    return end.exception.find(word) != std::string::npos ||
           end.error.find(word) != std::string::npos ||
           std::any_of(end.last_lines.begin(), end.last_lines.end(), [&](const std::string& line) {
             return line.find(word) != std::string::npos;
           });
  };
  return std::any_of(kWords.begin(), kWords.end(), says);
}

const WorkerEnd* LaunchOutcome::first_failure() const {
  // Lower is earlier: what ended by itself, for a reason of its own.
  const auto order = [](const WorkerEnd& end) {
    return std::tuple(!end.unasked, end.unasked && only_lost_a_peer(end), end.after);
  };
  const WorkerEnd* first = nullptr;
  for (const WorkerEnd& end : ends) {
    if (end.fate != WorkerFate::kFailed) continue;
    if (first == nullptr || order(end) < order(*first)) first = &end;
  }
  return first;
}

bool LaunchOutcome::succeeded() const {
  return !stop_signal && lost_machine.empty() &&
         std::all_of(ends.begin(), ends.end(),
                     [](const WorkerEnd& end) { return end.fate == WorkerFate::kSucceeded; });
}

int LaunchOutcome::exit_code() const {
  if (!lost_machine.empty()) return kLostMachineExitCode;
  if (const WorkerEnd* failure = first_failure()) {
    const int status = failure->wait_status;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  if (!stop_signal) return 0;
  // mpirun that is told to stop ends with a status of its own, which says nothing of the ranks.
  if (workers != kRanks) return 128 + *stop_signal;
  return agreed_status(ends).value_or(128 + *stop_signal);
}

std::string failure_report(const LaunchOutcome& outcome) {
  return failure_cause(outcome) + failure_consequences(outcome);
}

std::string failure_cause(const LaunchOutcome& outcome) {
  std::string report = failure_summary(outcome);
  const WorkerEnd* first = outcome.first_failure();
  const bool has_lines = first != nullptr && outcome.lost_machine.empty() &&
                         outcome.workers == kRanks && outcome.repeat_last_lines;
  if (has_lines) append_last_lines(report, *first);
  return report;
}

std::string failure_consequences(const LaunchOutcome& outcome) {
  if (outcome.succeeded() || is_told_already(outcome)) return "";
  const WorkerEnd* first = outcome.first_failure();
  std::string report;
  append_later_failures(report, outcome);
  append_other_errors(report, outcome);
  if (outcome.workers == kRanks) append_others(report, outcome);
  const bool could_not_reach =
      outcome.has_agents && first != nullptr && first->wait_status == W_EXITCODE(kSshFailed, 0);
  const auto place = static_cast<size_t>(first == nullptr ? 0 : first->rank);
  if (could_not_reach && place < outcome.led_to.size()) {
    report += "  try  ssh " + outcome.led_to[place] + " true\n";
  }
  const bool was_killed = first != nullptr && outcome.lost_machine.empty() &&
                          WIFSIGNALED(first->wait_status) &&
                          WTERMSIG(first->wait_status) == SIGKILL;
  if (was_killed) {
    report += "  try  `dmesg | tail`: the kernel kills a process like this when memory runs out\n";
  }
  return report;
}

std::string failure_summary(const LaunchOutcome& outcome) {
  if (outcome.succeeded() || is_told_already(outcome)) return "";
  if (!outcome.lost_machine.empty()) return "error: " + outcome.lost_machine + "\n";
  const WorkerEnd* first = outcome.first_failure();
  if (first != nullptr) return first_line(outcome, *first) + exception_line(*first);
  return "accelerate launch: stopped by " + signal_name(outcome.stop_signal.value_or(0)) + "\n";
}

std::string stopping_note(int signal, std::chrono::milliseconds grace) {
  return "accelerate launch: told to stop by " + signal_name(signal) + ": workers have " +
         describe_duration(grace) + " to end, Ctrl-C kills them\n";
}

}  // namespace accelerate::launch
