#include "accelerate/log.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <string>

#include "accelerate/errors.h"
#include "base/environment.h"

namespace accelerate {
namespace {

constexpr std::array<std::string_view, 5> kLevelNames = {"debug", "info", "warning", "error",
                                                         "off"};

LogLevel level_from_environment() {
  const std::string value = environment_variable("ACCELERATE_LOG_LEVEL").value_or("");
  if (value.empty()) return LogLevel::kWarning;
  std::string word = value;
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto found = std::find(kLevelNames.begin(), kLevelNames.end(), word);
  if (found == kLevelNames.end()) {
    throw ConfigError({.what = "'" + value + "' is not a log level",
                       .where = "environment variable ACCELERATE_LOG_LEVEL",
                       .hint = "use one of debug, info, warning, error, off"});
  }
  return static_cast<LogLevel>(found - kLevelNames.begin());
}

}  // namespace

LogLevel log_level() {
  static const LogLevel level = level_from_environment();
  return level;
}

void log(LogLevel level, std::string_view message) {
  if (level < log_level() || level == LogLevel::kOff) return;
  std::string line;
  if (const auto rank = environment_variable("RANK")) line += "[rank " + *rank + "] ";
  line += kLevelNames[static_cast<size_t>(level)];
  line += ": ";
  line += message;
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace accelerate
