// A folder of TensorBoard's event files: one run, as TensorBoard shows it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "accelerate/tracker.h"
#include "tracking/event_records.h"
#include "tracking/output_file.h"
#include "tracking/step_cuts.h"

namespace accelerate::tracking {

// What the names of event files are made of. Their order says in which order TensorBoard reads.
struct EventFileNames {
  std::function<double()> now;  // seconds since 1970
  std::string host;
  int64_t process = 0;
  int64_t next_number = 0;
  std::string suffix{};

  static EventFileNames of_this_process();
  std::string next();
};

class EventFolder {
 public:
  // `names` is shared by all folders of a tracker and must outlive this.
  EventFolder(std::filesystem::path path, EventFileNames& names)
      : path_(std::move(path)), names_(&names) {}

  const std::filesystem::path& path() const { return path_; }
  // Begins an event file, if none is open. Throws TrackerError if it cannot be made.
  void open();
  // An event that no step of an earlier try can be in the way of.
  void add(std::string_view event);
  // A value of `tag`: see continue_run().
  void add_value(std::string_view tag, const TrackedStep& at, std::string_view event);
  // From now on the first step of each tag takes away what is written up to now from there on. The
  // next value begins a new file, unless this one has none.
  void continue_run();
  void flush();

 private:
  std::filesystem::path path_;
  EventFileNames* names_;
  OutputFile file_;
  bool has_values_ = false;  // in the file that is open
  StepCutter cutter_;
};

// When in a run, as events say it.
EventStamp stamp_of(const TrackedStep& at);

}  // namespace accelerate::tracking
