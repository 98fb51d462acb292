#include "launch/output/job_record.h"

#include <unistd.h>

#include "base/host_name.h"
#include "launch/output/failure_report.h"

namespace accelerate::launch {
namespace {

using std::chrono::milliseconds;

// Lines of a worker are recorded each second until they fill this, then half as often for as much
// again, and so on.
constexpr size_t kBytesOfInterval = size_t{256} << 10;
constexpr milliseconds kLongestInterval{60'000};

run_record::WorkerFate recorded_fate(WorkerFate fate) {
  switch (fate) {
    case WorkerFate::kSucceeded:
      return run_record::WorkerFate::kSucceeded;
    case WorkerFate::kFailed:
      return run_record::WorkerFate::kFailed;
    case WorkerFate::kStopped:
      return run_record::WorkerFate::kStopped;
    case WorkerFate::kKilled:
      return run_record::WorkerFate::kKilled;
  }
  return run_record::WorkerFate::kFailed;
}

uint64_t number(int value) { return value < 0 ? 0 : static_cast<uint64_t>(value); }

}  // namespace

JobRecord::JobRecord(const MachinePlan& plan)
    : writer_(plan.run_dir, {.writer = run_record::WriterKind::kLauncher,
                             .index = number(plan.machine_rank),
                             .world_size = number(plan.num_processes),
                             .machine = number(plan.machine_rank),
                             .pid = number(getpid()),
                             .host = host_name(),
                             .program = plan.command.empty() ? "" : plan.command.front()}) {}

void JobRecord::begin_attempt(int restarts) {
  writer_.append(run_record::Attempt{.time_us = writer_.now_us(), .restarts = number(restarts)});
}

void JobRecord::worker_started(int rank, pid_t pid) {
  shown_[rank].lines.clear();
  writer_.append(run_record::WorkerStarted{
      .time_us = writer_.now_us(), .rank = number(rank), .pid = number(pid)});
}

void JobRecord::write_lines(int rank, const std::deque<std::string>& lines) {
  run_record::Lines record{.time_us = writer_.now_us(), .rank = number(rank)};
  Shown& shown = shown_[rank];
  for (const std::string& line : lines) {
    record.lines.push_back(line);
    shown.bytes += line.size();
  }
  writer_.append(record);
  shown.lines = lines;
}

void JobRecord::show_lines(int rank, const std::deque<std::string>& lines) {
  Shown& shown = shown_[rank];
  const auto now = std::chrono::steady_clock::now();
  if (now < shown.next || lines == shown.lines) return;
  write_lines(rank, lines);
  milliseconds interval = kInterval;
  for (size_t bytes = shown.bytes; bytes > kBytesOfInterval && interval < kLongestInterval;) {
    interval *= 2;
    bytes /= 2;
  }
  shown.next = now + interval;
}

void JobRecord::worker_ended(const WorkerEnd& end) {
  std::deque<std::string> lines = end.last_lines;
  if (!end.error.empty()) lines.push_back(end.error);
  if (lines != shown_[end.rank].lines) write_lines(end.rank, lines);
  writer_.append(run_record::WorkerEnded{.time_us = writer_.now_us(),
                                         .rank = number(end.rank),
                                         .fate = recorded_fate(end.fate),
                                         .how = describe_status(end.wait_status)});
}

}  // namespace accelerate::launch
