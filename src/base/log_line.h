// One line of a log.
#pragma once

#include <string>
#include <string_view>

#include "accelerate/log.h"
#include "accelerate/logger.h"

namespace accelerate {

struct LogLine {
  LogLevel level = LogLevel::kInfo;
  std::string_view rank{};  // "" where there is no other
  std::string_view name{};  // of the logger; "" for none
  std::string_view text{};
};

// With the line feed. As text:
//   [rank 1] warning: train: the loss is not finite
// as JSON, without what is empty:
//   {"time":"2026-11-19T13:05:11.250Z","level":"warning","rank":1,"host":"node1","pid":71,
//    "logger":"train","message":"the loss is not finite"}
std::string log_line_of(const LogLine& line, LogFormat format);

// That of ACCELERATE_LOG_FORMAT ("text" or "json"), read once; text where it is unset. Throws
// ConfigError for another word.
LogFormat log_format();

}  // namespace accelerate
