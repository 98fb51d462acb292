#include "accelerate/log.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <optional>
#include <string>

#include "accelerate/errors.h"
#include "base/bar_screen.h"
#include "base/environment.h"
#include "base/log_line.h"
#include "base/own_rank.h"

namespace accelerate {
namespace {

constexpr std::array<std::string_view, 6> kLevelNames = {"debug", "info",     "warning",
                                                         "error", "critical", "off"};

std::optional<LogLevel> find_level(std::string_view text) {
  std::string word(text);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (word == "warn") return LogLevel::kWarning;
  if (word == "fatal") return LogLevel::kCritical;
  const auto found = std::find(kLevelNames.begin(), kLevelNames.end(), word);
  if (found == kLevelNames.end()) return std::nullopt;
  return static_cast<LogLevel>(found - kLevelNames.begin());
}

ErrorInfo no_level(std::string_view word, std::string where) {
  return {.what = "'" + std::string(word) + "' is not a log level",
          .where = std::move(where),
          .hint = "use one of debug, info, warning, error, critical, off"};
}

LogLevel level_from_environment() {
  const std::string word = environment_variable("ACCELERATE_LOG_LEVEL").value_or("");
  if (word.empty()) return LogLevel::kWarning;
  if (const auto level = find_level(word)) return *level;
  throw ConfigError(no_level(word, "environment variable ACCELERATE_LOG_LEVEL"));
}

}  // namespace

std::string_view to_string(LogLevel level) { return kLevelNames[static_cast<size_t>(level)]; }

LogLevel parse_log_level(std::string_view word) {
  if (const auto level = find_level(word)) return *level;
  throw UsageError(no_level(word, "log level"));
}

LogLevel log_level() {
  static const LogLevel level = level_from_environment();
  return level;
}

void log(LogLevel level, std::string_view message) {
  if (level < log_level() || level == LogLevel::kOff) return;
  const std::string rank = own_rank();
  const std::string line =
      log_line_of({.level = level, .rank = rank, .text = message}, log_format());
  write_above_bars(stderr, line);
}

}  // namespace accelerate
