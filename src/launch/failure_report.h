// What the user reads when a job breaks.
#pragma once

#include <chrono>
#include <string>

#include "launch/launch_outcome.h"

namespace accelerate::launch {

// A few lines that end with a newline: which rank failed first, where and how, what it threw, its
// last lines, what became of the others. After a stop signal: that, and who had to be killed. ""
// if all went well.
std::string failure_report(const LaunchOutcome& outcome);

// The same in one or two lines, for machines that are not the main one.
std::string failure_summary(const LaunchOutcome& outcome);

// "exited with status 3", "was killed by signal 9 (SIGKILL)".
std::string describe_status(int wait_status);

// "420 ms", "1.50 s", "12.3 s", "3 min 05 s", "2 h 05 min".
std::string describe_duration(std::chrono::milliseconds duration);

}  // namespace accelerate::launch
