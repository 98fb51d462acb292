// What the user reads when a job breaks.
#pragma once

#include <chrono>
#include <string>

#include "launch/plan/launch_outcome.h"

namespace accelerate::launch {

// A few lines that end with a newline: which rank failed first, where and how, what it threw, its
// last lines, what became of the others. After a stop signal: that, and who had to be killed. ""
// if all went well.
std::string failure_report(const LaunchOutcome& outcome);

// Its two parts: who failed first, with its last lines, which is known before all have ended; and
// what became of the others.
std::string failure_cause(const LaunchOutcome& outcome);
std::string failure_consequences(const LaunchOutcome& outcome);

// Whether `end`, a failure, speaks of a connection to another worker that broke: then that one
// most likely failed before.
bool only_lost_a_peer(const WorkerEnd& end);

// The cause in one or two lines, for machines that are not the main one.
std::string failure_summary(const LaunchOutcome& outcome);

// That the workers were sent `signal`, how long they have, and how to end them at once.
std::string stopping_note(int signal, std::chrono::milliseconds grace);

// "exited with status 3", "was killed by signal 9 (SIGKILL)".
std::string describe_status(int wait_status);

// "420 ms", "1.50 s", "12.3 s", "3 min 05 s", "2 h 05 min".
std::string describe_duration(std::chrono::milliseconds duration);

}  // namespace accelerate::launch
