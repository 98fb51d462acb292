// The log of the library: one line per event on standard error, from a level that the
// environment sets. Standard headers only. For the messages of a training
// program see <accelerate/logger.h>.
#pragma once

#include <string_view>

#include "accelerate/export.h"

namespace accelerate {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kCritical, kOff };

// "debug", "info", "warning", "error", "critical", "off".
ACCELERATE_EXPORT std::string_view to_string(LogLevel level);

// The level that a word names: those of to_string(), "warn" and "fatal", in upper or lower
// case. Throws UsageError for another word.
ACCELERATE_EXPORT LogLevel parse_log_level(std::string_view word);

// The level below which nothing is written: ACCELERATE_LOG_LEVEL (a word of parse_log_level()),
// read once; `warning` where it is unset. Throws ConfigError for another word.
ACCELERATE_EXPORT LogLevel log_level();

// Writes "[rank 1] warning: message" to standard error in one call, so that lines of several
// ranks do not mix. The rank is the one that the launcher of this process gave it (torchrun's,
// Open MPI's, PMI's, MVAPICH's or SLURM's variable), left out where there is none.
// Progress bars on the terminal stay below the line. May be called from any thread; never blocks on
// other ranks.
ACCELERATE_EXPORT void log(LogLevel level, std::string_view message);

}  // namespace accelerate
