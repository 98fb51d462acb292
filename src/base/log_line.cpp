#include "base/log_line.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "accelerate/errors.h"
#include "base/environment.h"
#include "base/host_name.h"
#include "base/json_quote.h"

namespace accelerate {
namespace {

constexpr const char* kFormatVariable = "ACCELERATE_LOG_FORMAT";

LogFormat format_from_environment() {
  const std::string word = environment_variable(kFormatVariable).value_or("");
  if (word.empty() || word == "text") return LogFormat::kText;
  if (word == "json") return LogFormat::kJson;
  throw ConfigError({.what = "'" + word + "' is not a format of the log",
                     .where = std::string("environment variable ") + kFormatVariable,
                     .hint = "use text or json"});
}

std::string utc_now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data() + length, text.size() - length, ".%03dZ", static_cast<int>(ms % 1000));
  return text.data();
}

std::string json_line(const LogLine& line) {
  std::string json = "{\"time\":\"" + utc_now() + "\",\"level\":\"";
  json += to_string(line.level);
  json += '"';
  if (!line.rank.empty()) (json += ",\"rank\":") += line.rank;
  json += ",\"host\":";
  append_json_text(json, host_name());
  json += ",\"pid\":" + std::to_string(::getpid());
  if (!line.name.empty()) append_json_text(json += ",\"logger\":", line.name);
  append_json_text(json += ",\"message\":", line.text);
  return json + "}\n";
}

}  // namespace

LogFormat log_format() {
  static const LogFormat format = format_from_environment();
  return format;
}

std::string log_line_of(const LogLine& line, LogFormat format) {
  if (format == LogFormat::kJson) return json_line(line);
  std::string text;
  if (!line.rank.empty()) ((text += "[rank ") += line.rank) += "] ";
  (text += to_string(line.level)) += ": ";
  if (!line.name.empty()) (text += line.name) += ": ";
  return (text += line.text) + '\n';
}

}  // namespace accelerate
