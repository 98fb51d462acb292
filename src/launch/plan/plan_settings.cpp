// The small languages of settings that a plan holds typed.
#include <charconv>
#include <cmath>
#include <string_view>

#include "accelerate/errors.h"
#include "launch/plan/launch_plan.h"

namespace accelerate::launch {
namespace {

using std::chrono::milliseconds;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<int> whole_number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

[[noreturn]] void refuse_tee(const std::string& text) {
  throw ConfigError(
      {.what = "'" + text + "' does not say which streams to show",
       .where = "--tee",
       .hint = "1 (output), 2 (errors), 3 (both), none, 0 (all, as without the flag), or by local "
               "rank: 0:3,1:2"});
}

milliseconds seconds_of(const std::string& name, const std::string& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || !std::isfinite(seconds) || seconds <= 0 || seconds > 1e7) {
    throw ConfigError({.what = name + "=" + text + " is not a number of seconds above 0",
                       .where = "--rdzv_conf",
                       .hint = "for example join_timeout=600,machine_timeout=30"});
  }
  return milliseconds(static_cast<int64_t>(std::ceil(seconds * 1000)));
}

}  // namespace

Tee Tee::parse(const std::string& text) {
  Tee tee;
  if (text.find(':') == std::string::npos) {
    const auto streams = whole_number(text);
    if (!streams || *streams > (kOut | kErr)) refuse_tee(text);
    tee.all_ranks = *streams;
    return tee;
  }
  for (const std::string& item : split(text, ',')) {
    const size_t colon = item.find(':');
    if (colon == std::string::npos) refuse_tee(text);
    const auto rank = whole_number(item.substr(0, colon));
    const auto streams = whole_number(item.substr(colon + 1));
    if (!rank || !streams || *streams > (kOut | kErr)) refuse_tee(text);
    tee.of_rank[*rank] = *streams;
  }
  return tee;
}

void apply_rendezvous_settings(const std::string& text, LaunchPlan& plan) {
  if (text.empty()) return;
  std::optional<milliseconds> interval;
  std::optional<int> attempts;
  for (const std::string& item : split(text, ',')) {
    const size_t equals = item.find('=');
    const std::string name = item.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (name == "join_timeout" || name == "timeout") {
      plan.join_timeout = seconds_of(name, value);
    } else if (name == "last_call_timeout") {
      plan.last_call = seconds_of(name, value);
    } else if (name == "machine_timeout") {
      plan.machine_timeout = seconds_of(name, value);
    } else if (name == "keep_alive_interval") {
      interval = seconds_of(name, value);
    } else if (name == "keep_alive_max_attempt") {
      attempts = whole_number(value);
      if (!attempts || *attempts == 0) {
        throw ConfigError({.what = item + " is not a number of attempts", .where = "--rdzv_conf"});
      }
    } else {
      throw ConfigError({.what = "'" + item + "' is not known",
                         .where = "--rdzv_conf",
                         .hint = "known: join_timeout, last_call_timeout, machine_timeout, "
                                 "keep_alive_interval, keep_alive_max_attempt and timeout"});
    }
  }
  if (!interval && !attempts) return;
  constexpr milliseconds kTorchInterval{5'000};
  constexpr int kTorchAttempts = 3;
  plan.machine_timeout = interval.value_or(kTorchInterval) * attempts.value_or(kTorchAttempts);
}

}  // namespace accelerate::launch
