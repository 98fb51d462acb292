#include "notebook/first_failure.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>

namespace accelerate::notebook {
namespace {

// The lower, the earlier.
std::tuple<int, int64_t, int> order_of(const ForkedEnd& end) {
  const bool threw = end.report && end.report->kind == WorkerReport::Kind::kException;
  int kind = end.stopped ? 3 : 1;
  if (threw) kind = end.report->lost_peer ? 2 : 0;
  return {kind, threw ? end.report->nanoseconds : 0, end.rank};
}

ErrorInfo describe(const ForkedEnd& end) {
  if (end.report) return {.what = end.report->text};
  if (end.wait_status && WIFSIGNALED(*end.wait_status)) {
    const int signal = WTERMSIG(*end.wait_status);
    ErrorInfo info{.what = "the worker was killed by signal " + std::to_string(signal) + " (" +
                           strsignal(signal) + ")"};
    if (signal == SIGKILL) info.hint = "check the kernel log: memory may have run out";
    return info;
  }
  if (end.wait_status && WIFEXITED(*end.wait_status)) {
    if (WEXITSTATUS(*end.wait_status) == kReportIsLost) {
      return {.what = "what the worker's function returned or threw is lost",
              .hint =
                  "check whether the function closes descriptors that it does not own, "
                  "and whether memory has run out"};
    }
    return {.what = "the worker exited with status " +
                    std::to_string(WEXITSTATUS(*end.wait_status)) +
                    " before its function returned"};
  }
  return {.what = "the worker ended before its function returned",
          .hint = "the process that supervises the workers was killed"};
}

}  // namespace

std::optional<WorkerError> first_failure(const std::vector<ForkedEnd>& ends, int world_size) {
  const ForkedEnd* first = nullptr;
  for (const ForkedEnd& end : ends) {
    if (end.succeeded()) continue;
    if (first == nullptr || order_of(end) < order_of(*first)) first = &end;
  }
  if (first == nullptr) return std::nullopt;
  WorkerError error(describe(*first));
  error.set_rank(first->rank, world_size);
  return error;
}

}  // namespace accelerate::notebook
