#include "monitor/view/run_view.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace accelerate::monitor {
namespace {

using run_record::DeviceKind;
using run_record::WriterKind;

constexpr uint64_t kMostRanks = 4096;
constexpr size_t kMostDevices = 4096;
constexpr size_t kMostSettings = 2000;
constexpr size_t kMostProblems = 50;
constexpr double kMicro = 1e-6;

// The newest step time weighs this much against those before.
constexpr double kNewStepWeight = 0.3;

RankState state_after(run_record::WorkerFate fate) {
  switch (fate) {
    case run_record::WorkerFate::kSucceeded:
      return RankState::kSucceeded;
    case run_record::WorkerFate::kFailed:
      return RankState::kFailed;
    case run_record::WorkerFate::kStopped:
    case run_record::WorkerFate::kKilled:
      return RankState::kStopped;
  }
  return RankState::kUnknown;
}

bool has_ended(const RankView& rank) {
  return rank.state == RankState::kSucceeded || rank.state == RankState::kFailed ||
         rank.state == RankState::kStopped;
}

}  // namespace

void RunView::take(int file, const run_record::Record& record) {
  File& of = files_[file];
  std::visit([&](const auto& any) { take(of, any); }, record);
}

void RunView::mark_damaged(const std::string& file_name, uint64_t position) {
  if (problems_.size() >= kMostProblems) return;
  problems_.push_back(file_name + " is damaged at byte " + std::to_string(position) +
                      ": what follows is not shown");
}

double RunView::hear(const File& file, uint64_t time_us) {
  const double now = file.unix_begin + static_cast<double>(time_us) * kMicro;
  if (now > last_heard_) last_heard_ = now;
  return now;
}

RankView* RunView::rank_of(uint64_t rank) {
  if (rank >= kMostRanks) return nullptr;
  RankView& view = ranks_[rank];
  view.rank = rank;
  return &view;
}

bool RunView::is_outdated(const File& file) const {
  const auto rank = ranks_.find(file.begin.index);
  return rank != ranks_.end() && rank->second.pid != file.begin.pid;
}

void RunView::take(File& file, const run_record::Begin& begin) {
  file.begin = begin;
  file.unix_begin = static_cast<double>(begin.unix_us) * kMicro;
  const double now = hear(file, 0);
  if (began_ == 0 || now < began_) began_ = now;
  if (begin.world_size <= kMostRanks) world_size_ = std::max(world_size_, begin.world_size);
  // What the user called names the run; without a launcher the first rank does.
  const bool is_command = begin.writer == WriterKind::kCommand;
  const bool is_first_rank = begin.writer == WriterKind::kRank && begin.index == 0;
  if (is_command || (is_first_rank && program_.empty())) {
    program_ = begin.program;
    host_ = begin.host;
  }
  if (is_command) exit_code_.reset();  // the run goes on in the folder of an earlier one
  update_state();
  if (begin.writer != WriterKind::kRank) return;
  RankView* rank = rank_of(begin.index);
  if (rank == nullptr) return;
  if (is_first_rank && !step_time_.points().empty()) step_base_ = step_time_.points().back().step;
  rank->restarts = std::max(rank->restarts, begin.attempt);
  // Files are read one after the other: the launcher may have told the end of it already.
  if (now < rank->known_at) return;
  rank->known_at = now;
  rank->pid = begin.pid;
  rank->host = begin.host;
  rank->machine = begin.machine;
  rank->steps = 0;
  rank->activity.clear();
  rank->ended.clear();
  rank->saves = false;
  rank->state = RankState::kRunning;
  rank->last_heard = now;
  update_state();
}

void RunView::take(File& file, const run_record::Name& name) {
  constexpr size_t kMostNames = 10'000;
  if (file.names.size() < kMostNames) file.names[name.id] = name.text;
}

void RunView::take(File& file, const run_record::Steps& steps) {
  const double now = hear(file, steps.time_us);
  RankView* rank = rank_of(file.begin.index);
  if (rank == nullptr || steps.count == 0) return;
  const double count = static_cast<double>(steps.count);
  const double seconds = static_cast<double>(steps.total_us) * kMicro / count;
  const auto blend = [&](double before, double newest) {
    return rank->steps == 0 ? newest : before + kNewStepWeight * (newest - before);
  };
  std::map<std::string, double> parts;
  for (const run_record::StepPart& part : steps.parts) {
    const auto name = file.names.find(part.name);
    if (name == file.names.end()) continue;
    parts[name->second] += static_cast<double>(part.us) * kMicro / count;
  }
  for (auto& [name, value] : rank->parts) parts.try_emplace(name, 0);
  for (auto& [name, value] : parts) rank->parts[name] = blend(rank->parts[name], value);
  const double rate = seconds > 0 ? static_cast<double>(steps.samples) / count / seconds : 0;
  rank->step_seconds = blend(rank->step_seconds, seconds);
  rank->samples_per_second = blend(rank->samples_per_second, rate);
  rank->steps = steps.last;
  rank->last_heard = now;
  if (file.begin.index != ranks_.begin()->first) return;
  const double step = step_base_ + static_cast<double>(steps.last);
  const double at = seconds_of_run(now);
  step_time_.add(step, at, seconds * 1e3);
  knows_samples_ = knows_samples_ || steps.samples > 0;
  const double ranks = static_cast<double>(std::max<uint64_t>(1, file.begin.world_size));
  if (seconds > 0) throughput_.add(step, at, knows_samples_ ? rate * ranks : 1 / seconds);
  for (const auto& [name, value] : parts) {
    if (parts_.size() < kMostCurves || parts_.contains(name))
      parts_[name].add(step, at, value * 1e3);
  }
}

void RunView::take(File& file, const run_record::Values& values) {
  const double now = hear(file, values.time_us);
  for (const run_record::Value& value : values.values) {
    const auto found = file.names.find(value.name);
    if (found == file.names.end()) continue;
    const uint64_t owner = owners_.try_emplace(found->second, file.begin.index).first->second;
    std::string name = found->second;
    if (owner != file.begin.index) name += " [rank " + std::to_string(file.begin.index) + "]";
    if (values_.size() >= kMostCurves && !values_.contains(name)) continue;
    values_[name].add(static_cast<double>(values.step), seconds_of_run(now), value.value);
  }
}

void RunView::take(File& file, const run_record::Now& now) {
  const double time = hear(file, now.time_us);
  RankView* rank = rank_of(file.begin.index);
  if (rank == nullptr || is_outdated(file)) return;
  rank->last_heard = time;
  rank->activity = now.activity;
  rank->operation = now.operation;
  rank->since = file.unix_begin + static_cast<double>(now.since_us) * kMicro;
  show_state(*rank, now.waits);
}

void RunView::show_state(RankView& rank, bool waits) {
  if (has_ended(rank)) return;
  rank.state = waits ? RankState::kWaiting : rank.saves ? RankState::kSaving : RankState::kRunning;
}

void RunView::take(File& file, const run_record::Checkpoint& checkpoint) {
  hear(file, checkpoint.time_us);
  CheckpointView view{.rank = file.begin.index,
                      .began = file.unix_begin + static_cast<double>(checkpoint.time_us) * kMicro,
                      .seconds = static_cast<double>(checkpoint.took_us) * kMicro,
                      .is_open = checkpoint.is_open,
                      .failed = checkpoint.failed,
                      .what = checkpoint.what};
  RankView* rank = rank_of(file.begin.index);
  const bool is_over = rank == nullptr || has_ended(*rank) || is_outdated(file);
  if (view.is_open && is_over) {
    view.is_open = false;
    view.failed = true;  // unless its end follows
  }
  if (!is_over) {
    rank->saves = view.is_open;
    show_state(*rank, false);
  }
  const auto open = std::ranges::find_if(checkpoints_, [&](const CheckpointView& each) {
    return each.rank == view.rank && each.what == view.what && each.began == view.began;
  });
  if (open != checkpoints_.end()) {
    *open = std::move(view);
    return;
  }
  checkpoints_.push_back(std::move(view));
  if (checkpoints_.size() > kMostCheckpoints) checkpoints_.pop_front();
}

void RunView::take(File& file, const run_record::Lost& lost) {
  hear(file, lost.time_us);
  RankView* rank = file.begin.writer == WriterKind::kRank ? rank_of(file.begin.index) : nullptr;
  if (rank == nullptr) return;
  rank->lost_events = lost.events;
  rank->lost_values = lost.values;
}

void RunView::take(File& /*file*/, const run_record::Setting& setting) {
  const auto same = std::ranges::find(settings_, setting.name, &run_record::Setting::name);
  if (same != settings_.end()) {
    *same = setting;
  } else if (settings_.size() < kMostSettings) {
    settings_.push_back(setting);
  }
}

void RunView::take(File& file, const run_record::WorkerStarted& started) {
  const double now = hear(file, started.time_us);
  RankView* rank = rank_of(started.rank);
  if (rank == nullptr || now < rank->known_at) return;
  rank->known_at = now;
  if (rank->pid != started.pid) {
    rank->pid = started.pid;
    rank->steps = 0;
    rank->activity.clear();
    rank->lines.clear();
    rank->saves = false;
  }
  rank->host = file.begin.host;
  rank->machine = file.begin.index;
  rank->restarts = restarts_;
  rank->ended.clear();
  rank->state = RankState::kRunning;
  rank->last_heard = now;
}

void RunView::take(File& file, const run_record::Lines& lines) {
  hear(file, lines.time_us);
  if (RankView* rank = rank_of(lines.rank)) rank->lines = lines.lines;
}

void RunView::take(File& file, const run_record::WorkerEnded& ended) {
  const double now = hear(file, ended.time_us);
  RankView* rank = rank_of(ended.rank);
  if (rank == nullptr || now < rank->known_at) return;
  rank->known_at = now;
  rank->state = state_after(ended.fate);
  rank->ended = ended.how;
  rank->activity.clear();
  rank->operation.clear();
  rank->processors = 0;
  for (CheckpointView& checkpoint : checkpoints_) {
    if (checkpoint.rank != ended.rank || !checkpoint.is_open) continue;
    checkpoint.is_open = false;
    checkpoint.failed = true;
  }
}

void RunView::take(File& file, const run_record::Attempt& attempt) {
  hear(file, attempt.time_us);
  restarts_ = std::max(restarts_, attempt.restarts);
}

void RunView::take(File& file, const run_record::Device& device) {
  if (device.kind == DeviceKind::kWorker) {
    file.worker_ranks[device.id] = device.index;
    return;
  }
  if (devices_.size() >= kMostDevices) return;
  const auto same = std::ranges::find_if(devices_, [&](const DeviceView& each) {
    return each.kind == device.kind && each.index == device.index && each.host == file.begin.host;
  });
  file.devices[device.id] = static_cast<size_t>(same - devices_.begin());
  if (same != devices_.end()) return;
  devices_.push_back({.kind = device.kind,
                      .machine = file.begin.index,
                      .index = device.index,
                      .host = file.begin.host,
                      .name = device.name,
                      .memory_bytes = device.memory_bytes});
}

void RunView::take(File& file, const run_record::Sample& sample) {
  const double now = hear(file, sample.time_us);
  const auto worker = file.worker_ranks.find(sample.device);
  if (worker != file.worker_ranks.end()) {
    RankView* rank = rank_of(worker->second);
    if (rank == nullptr) return;
    rank->processors = has_ended(*rank) ? 0 : sample.busy;
    rank->memory_bytes = sample.memory_bytes;
    return;
  }
  const auto found = file.devices.find(sample.device);
  if (found == file.devices.end()) return;
  DeviceView& device = devices_[found->second];
  device.busy = sample.busy;
  device.used_bytes = sample.memory_bytes;
  device.watts = sample.watts;
  device.celsius = sample.celsius;
  const double seconds = seconds_of_run(now);
  device.busy_curve.add(seconds, seconds, sample.busy);
  device.memory_curve.add(seconds, seconds, static_cast<double>(sample.memory_bytes));
}

void RunView::take(File& file, const run_record::End& end) {
  const double now = hear(file, end.time_us);
  if (file.begin.writer == WriterKind::kRank) {
    RankView* rank = rank_of(file.begin.index);
    if (rank == nullptr || is_outdated(file)) return;
    rank->last_heard = now;
    rank->activity.clear();
    rank->operation.clear();
    // The accelerator has gone; a launcher, where there is one, says how the process ended.
    if (!has_ended(*rank)) rank->state = RankState::kSucceeded;
  }
  if (file.begin.writer == WriterKind::kCommand) exit_code_ = end.exit_code;
  update_state();
}

void RunView::update_state() {
  if (exit_code_) {
    state_ = *exit_code_ == 0 ? RunState::kSucceeded : RunState::kFailed;
    return;
  }
  const bool has_launcher = std::ranges::any_of(
      files_, [](const auto& entry) { return entry.second.begin.writer == WriterKind::kCommand; });
  if (has_launcher || ranks_.empty()) {
    state_ = RunState::kRunning;
    return;
  }
  const bool all_ended =
      std::ranges::all_of(ranks_, [](const auto& e) { return has_ended(e.second); });
  state_ = all_ended ? RunState::kSucceeded : RunState::kRunning;
}

const char* name_of(RankState state) {
  switch (state) {
    case RankState::kUnknown:
      return "unknown";
    case RankState::kRunning:
      return "running";
    case RankState::kWaiting:
      return "waiting";
    case RankState::kSaving:
      return "saving";
    case RankState::kSucceeded:
      return "done";
    case RankState::kFailed:
      return "failed";
    case RankState::kStopped:
      return "stopped";
  }
  return "unknown";
}

const char* name_of(RunState state) {
  switch (state) {
    case RunState::kUnknown:
      return "unknown";
    case RunState::kRunning:
      return "running";
    case RunState::kSucceeded:
      return "done";
    case RunState::kFailed:
      return "failed";
  }
  return "unknown";
}

}  // namespace accelerate::monitor
