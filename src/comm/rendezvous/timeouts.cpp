#include "comm/rendezvous/timeouts.h"

#include <charconv>
#include <chrono>
#include <optional>
#include <string>

#include "accelerate/errors.h"

namespace accelerate::comm {
namespace {

using std::chrono::milliseconds;

constexpr double kLongestTimeout = 365.0 * 24 * 3600;  // in seconds; keeps sums far from overflow

std::optional<milliseconds> timeout_variable(const EnvironmentLookup& lookup, const char* name) {
  const auto text = lookup(name);
  if (!text || text->empty()) return {};
  double seconds = 0;
  const char* end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, seconds);
  if (error == std::errc() && rest == end && seconds >= 0.001 && seconds <= kLongestTimeout) {
    return milliseconds(static_cast<int64_t>(seconds * 1000));
  }
  throw ConfigError({.what = "\"" + *text + "\" is not a number of seconds",
                     .where = std::string("environment variable ") + name,
                     .hint = "set it to 0.001 or more, or leave it out for the default"});
}

}  // namespace

ProcessGroupOptions with_timeouts(ProcessGroupOptions options, const EnvironmentLookup& lookup) {
  const auto settle = [&](std::optional<milliseconds>& timeout, const char* variable,
                          milliseconds otherwise) {
    if (!timeout) timeout = timeout_variable(lookup, variable).value_or(otherwise);
    if (timeout->count() > 0) return;
    throw UsageError({.what = "a timeout must be positive",
                      .where = "ProcessGroupOptions",
                      .hint = "leave it out for the default"});
  };
  settle(options.timeout, "ACCELERATE_COLLECTIVE_TIMEOUT", std::chrono::minutes(30));
  settle(options.rendezvous_timeout, "ACCELERATE_RENDEZVOUS_TIMEOUT", std::chrono::minutes(10));
  return options;
}

}  // namespace accelerate::comm
