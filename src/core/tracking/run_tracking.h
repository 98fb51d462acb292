// The trackers of an accelerator, from init_trackers() to end_training().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "accelerate/checkpoint.h"
#include "accelerate/process_state.h"
#include "accelerate/tracking.h"
#include "core/tracking/tracked_tensors.h"
#include "tracking/exit_flush.h"
#include "tracking/tracker_writer.h"

namespace accelerate {

class RunTracking {
 public:
  // `record` gets what is logged on the main process beside the trackers, from the beginning where
  // `log_with` names none; null: the run is not recorded.
  RunTracking(const ProcessState& state, std::vector<TrackerChoice> log_with,
              const ProjectOptions& project, std::shared_ptr<GeneralTracker> record);

  // See Accelerator.
  void init(const std::string& project, const TrackerConfig& config,
            const TrackerInitOptions& options);
  // A checkpoint was loaded.
  void continue_run();
  void end();

  // `tracker` is an index, or Record::kAllTrackers.
  void log(int tracker, std::span<const Logged> values, std::optional<int64_t> step);
  void log_images(int tracker, std::initializer_list<LoggedImages> images,
                  std::optional<int64_t> step, ImageLayout layout);
  void log_histogram(int tracker, std::string_view name, const at::Tensor& values,
                     std::optional<int64_t> step);
  void attach(int tracker, tracking::Attachment attachment, std::optional<int64_t> step);

  // Nothing where this process does not have it. Throws UsageError for a name nobody has.
  std::optional<int> find(const std::string& name) const;
  GeneralTracker& tracker(int index) const {
    return *writer_->trackers()[static_cast<size_t>(index)];
  }

 private:
  void require_started(const char* where) const;
  void attach_tensors(int tracker, const TrackedTensors& tensors, std::optional<int64_t> step);
  std::vector<std::shared_ptr<GeneralTracker>> make_trackers(
      const TrackerInitOptions& options) const;

  const std::vector<TrackerChoice> log_with_;
  const std::filesystem::path logging_dir_;
  const bool is_main_process_;
  const std::shared_ptr<GeneralTracker> record_;
  bool is_started_ = false;
  std::atomic<bool> is_ended_{false};
  bool was_loaded_ = false;
  std::unique_ptr<tracking::TrackerWriter> writer_;  // null where nothing is tracked
  std::unique_ptr<tracking::ExitFlush> exit_flush_;
  std::vector<std::string> names_;  // of all trackers of the run, also those of other processes
};

}  // namespace accelerate
