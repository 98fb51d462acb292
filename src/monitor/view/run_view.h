// A run as its records tell it: the present state of all that takes part, and curves.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "monitor/view/series.h"
#include "run_record/record_format.h"

namespace accelerate::monitor {

enum class RankState { kUnknown, kRunning, kWaiting, kSaving, kSucceeded, kFailed, kStopped };

// Times are Unix time in seconds.
struct RankView {
  uint64_t rank = 0;
  RankState state = RankState::kUnknown;
  uint64_t machine = 0;
  uint64_t pid = 0;
  uint64_t restarts = 0;
  std::string host{};
  std::string ended{};      // "exit code 1"; "" while it runs
  uint64_t steps = 0;       // of the present process
  double step_seconds = 0;  // of the latest, on average
  double samples_per_second = 0;
  std::map<std::string, double> parts{};  // of step_seconds
  std::string activity{};                 // "": nothing that lasts
  std::string operation{};
  double since = 0;       // of the activity
  double last_heard = 0;  // its last record
  double known_at = 0;    // when its process last began or ended, as far as was read
  bool saves = false;
  double processors = 0;  // that it keeps busy
  uint64_t memory_bytes = 0;
  uint64_t lost_events = 0;
  uint64_t lost_values = 0;
  std::vector<std::string> lines{};
};

struct DeviceView {
  run_record::DeviceKind kind = run_record::DeviceKind::kMachine;
  uint64_t machine = 0;
  uint64_t index = 0;
  std::string host{};
  std::string name{};
  uint64_t memory_bytes = 0;
  uint64_t used_bytes = 0;
  double busy = 0;
  double watts = 0;
  double celsius = 0;
  Series busy_curve{};    // over seconds
  Series memory_curve{};  // in bytes
};

struct CheckpointView {
  uint64_t rank = 0;
  double began = 0;
  double seconds = 0;
  bool is_open = false;
  bool failed = false;
  std::string what{};
};

enum class RunState { kUnknown, kRunning, kSucceeded, kFailed };

// Takes the records of all files of a run, in any interleaving of files. Used by one thread.
class RunView {
 public:
  static constexpr size_t kMostCheckpoints = 200;  // the newest are kept
  static constexpr size_t kMostCurves = 512;

  // `file` tells the files of a run apart. Nothing is expected of what records say.
  void take(int file, const run_record::Record& record);
  // The file cannot be read any further.
  void mark_damaged(const std::string& file_name, uint64_t position);

  RunState state() const { return state_; }
  double began() const { return began_; }  // 0: nothing is known yet
  double last_heard() const { return last_heard_; }
  const std::string& program() const { return program_; }
  const std::string& host() const { return host_; }
  uint64_t world_size() const { return world_size_; }
  uint64_t restarts() const { return restarts_; }
  std::optional<int64_t> exit_code() const { return exit_code_; }
  const std::map<uint64_t, RankView>& ranks() const { return ranks_; }
  const std::vector<DeviceView>& devices() const { return devices_; }
  const std::deque<CheckpointView>& checkpoints() const { return checkpoints_; }
  const std::vector<run_record::Setting>& settings() const { return settings_; }
  const std::vector<std::string>& problems() const { return problems_; }
  // What was logged, by name; of ranks other than the first that logs it with the rank behind it.
  const std::map<std::string, Series>& values() const { return values_; }
  // Of the first rank: milliseconds a step, samples or steps a second of all ranks, parts of a step
  // in milliseconds.
  const std::map<std::string, Series>& parts() const { return parts_; }
  const Series& step_time() const { return step_time_; }
  const Series& throughput() const { return throughput_; }
  bool knows_samples() const { return knows_samples_; }

 private:
  struct File {
    run_record::Begin begin{};
    double unix_begin = 0;
    std::map<uint64_t, std::string> names{};
    std::map<uint64_t, size_t> devices{};         // id to place in devices_
    std::map<uint64_t, uint64_t> worker_ranks{};  // id of a device that is a worker
  };

  void take(File& file, const run_record::Begin& begin);
  void take(File& file, const run_record::Name& name);
  void take(File& file, const run_record::Steps& steps);
  void take(File& file, const run_record::Values& values);
  void take(File& file, const run_record::Now& now);
  void take(File& file, const run_record::Checkpoint& checkpoint);
  void take(File& file, const run_record::Lost& lost);
  void take(File& file, const run_record::Setting& setting);
  void take(File& file, const run_record::WorkerStarted& started);
  void take(File& file, const run_record::Lines& lines);
  void take(File& file, const run_record::WorkerEnded& ended);
  void take(File& file, const run_record::Attempt& attempt);
  void take(File& file, const run_record::Device& device);
  void take(File& file, const run_record::Sample& sample);
  void take(File& file, const run_record::End& end);

  double hear(const File& file, uint64_t time_us);
  double seconds_of_run(double unix_time) const { return unix_time - began_; }
  RankView* rank_of(uint64_t rank);
  // Another process has become this rank since.
  bool is_outdated(const File& file) const;
  void update_state();
  static void show_state(RankView& rank, bool waits);

  std::map<int, File> files_;
  std::map<uint64_t, RankView> ranks_;
  std::vector<DeviceView> devices_;
  std::deque<CheckpointView> checkpoints_;
  std::vector<run_record::Setting> settings_;
  std::vector<std::string> problems_;
  std::map<std::string, Series> values_;
  std::map<std::string, uint64_t> owners_;  // the rank whose value has the bare name
  std::map<std::string, Series> parts_;
  Series step_time_;
  Series throughput_;
  bool knows_samples_ = false;
  RunState state_ = RunState::kUnknown;
  double began_ = 0;
  double last_heard_ = 0;
  uint64_t world_size_ = 0;
  uint64_t restarts_ = 0;
  double step_base_ = 0;  // steps of earlier processes of the first rank
  std::string program_;
  std::string host_;
  std::optional<int64_t> exit_code_;
};

// "running", "waiting"
const char* name_of(RankState state);
const char* name_of(RunState state);

}  // namespace accelerate::monitor
