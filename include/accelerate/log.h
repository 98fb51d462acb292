// Where the library says what it does: one line an event, on standard error, below a level that
// the environment sets. Standard headers only: open to every room.
#pragma once

#include <string_view>

namespace accelerate {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// The level below which nothing is written: ACCELERATE_LOG_LEVEL (debug, info, warning, error,
// off; any case), read once; `warning` where it is unset. Throws ConfigError for another word.
LogLevel log_level();

// Writes "[rank 1] warning: message" to standard error in one call, so that lines of several
// ranks do not mix. The rank is the RANK variable of this process, left out where there is none.
// May be called from any thread; never blocks on other ranks.
void log(LogLevel level, std::string_view message);

}  // namespace accelerate
