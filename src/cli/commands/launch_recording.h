// What `accelerate launch` does so that a run can be looked at.
#pragma once

#include <optional>
#include <string>

#include "cli/help/launch_arguments.h"
#include "config/settings.h"
#include "launch/plan/launch_plan.h"
#include "run_record/record_writer.h"

namespace accelerate::cli {

// The record of the run that settings ask for by monitor or run_dir, and its page. Nothing where
// they ask for neither.
class LaunchRecording {
 public:
  // Makes the folder, writes what was asked for, with where each value came from, and opens the
  // socket of the page; `plan` is told of all that. Throws ConfigError if the folder cannot be
  // written, or the page not be served there.
  LaunchRecording(const config::Settings& settings, const LaunchArguments& arguments,
                  launch::LaunchPlan& plan);
  // An end that nobody told is a failure.
  ~LaunchRecording();
  LaunchRecording(const LaunchRecording&) = delete;
  LaunchRecording& operator=(const LaunchRecording&) = delete;

  // For the user: where the page is, and the record; "" where there is none.
  const std::string& note() const { return note_; }

  // The job has ended with this code, which is returned.
  int ended(int exit_code);

 private:
  std::optional<run_record::RecordWriter> writer_;
  std::string note_;
};

}  // namespace accelerate::cli
