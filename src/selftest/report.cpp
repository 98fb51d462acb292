#include "selftest/report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/terminal_width.h"

namespace accelerate::selftest {
namespace {

constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kYellow = "\x1b[33m";
constexpr const char* kRed = "\x1b[31m";
constexpr const char* kFaint = "\x1b[2m";
constexpr const char* kBold = "\x1b[1m";

double seconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

std::string duration_text(std::chrono::nanoseconds duration) {
  char text[32];
  if (duration < std::chrono::seconds(1)) {
    std::snprintf(text, sizeof text, "%.0f ms", seconds(duration) * 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.1f s", seconds(duration));
  }
  return text;
}

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

// Lines after the first stand under it.
std::string indented(std::string text, size_t depth) {
  for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) {
    text.insert(at + 1, depth, ' ');
  }
  return text;
}

const char* name_of(Status status) {
  switch (status) {
    case Status::kPassed:
      return "passed";
    case Status::kSkipped:
      return "skipped";
    case Status::kFailed:
      return "failed";
  }
  return "unknown";
}

int64_t count(const std::vector<CheckResult>& results, Status status) {
  return std::count_if(results.begin(), results.end(),
                       [&](const CheckResult& result) { return result.status == status; });
}

}  // namespace

std::string TickList::coloured(const char* colour, const std::string& text) const {
  return colours_ ? colour + text + "\x1b[0m" : text;
}

std::string TickList::lines(const CheckResult& result) {
  constexpr size_t kNameWidth = 28;
  constexpr size_t kDetailColumn = 44;
  constexpr size_t kLeastDetail = 20;  // columns
  std::string text;
  if (result.family != family_) {
    text += (family_.empty() ? "" : "\n") + coloured(kBold, result.family) + "\n";
    family_ = result.family;
  }
  const std::string tick = result.status == Status::kPassed    ? coloured(kGreen, "✓")
                           : result.status == Status::kSkipped ? coloured(kYellow, "-")
                                                               : coloured(kRed, "✗");
  text +=
      "  " + tick + " " + padded(result.name, kNameWidth) +
      coloured(
          kFaint,
          "  " + std::string(8 - std::min<size_t>(8, duration_text(result.duration).size()), ' ') +
              duration_text(result.duration));
  if (!result.detail.empty()) {
    const std::string detail =
        (result.status == Status::kSkipped ? "skipped: " : "") + result.detail;
    const bool is_broken = columns_ >= kDetailColumn + kLeastDetail;
    text += "  " +
            (is_broken ? words_in_lines(detail, kDetailColumn, columns_, kDetailColumn) : detail);
  }
  text += "\n";
  for (const CheckResult::Failure& failure : result.failures) {
    text += "      " +
            coloured(kRed, "rank " + std::to_string(failure.rank) + " of " +
                               std::to_string(world_size_)) +
            ": " + indented(failure.text, 6) + "\n";
  }
  return text;
}

std::string TickList::summary(const std::vector<CheckResult>& results) const {
  std::chrono::nanoseconds all{0};
  for (const CheckResult& result : results) all += result.duration;
  const int64_t skipped = count(results, Status::kSkipped);
  const int64_t failed = count(results, Status::kFailed);
  std::string text = std::to_string(count(results, Status::kPassed)) + " passed";
  if (skipped > 0) text += ", " + std::to_string(skipped) + " skipped";
  if (failed > 0) text += ", " + std::to_string(failed) + " failed";
  return coloured(failed > 0 ? kRed : kGreen, text) + " in " + duration_text(all);
}

std::string to_json(const ProcessState& state, const std::vector<CheckResult>& results) {
  nlohmann::ordered_json checks = nlohmann::ordered_json::array();
  for (const CheckResult& result : results) {
    nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
    for (const Metric& metric : result.metrics) metrics[metric.name] = metric.value;
    nlohmann::ordered_json failures = nlohmann::ordered_json::array();
    for (const CheckResult::Failure& failure : result.failures) {
      failures.push_back({{"rank", failure.rank}, {"message", failure.text}});
    }
    checks.push_back({{"family", result.family},
                      {"name", result.name},
                      {"status", name_of(result.status)},
                      {"detail", result.detail},
                      {"seconds", seconds(result.duration)},
                      {"metrics", metrics},
                      {"failures", failures}});
  }
  const nlohmann::ordered_json report = {{"passed", all_passed(results)},
                                         {"world_size", state.world_size()},
                                         {"device", state.device().str()},
                                         {"checks", checks}};
  // Messages of libraries may hold bytes that are not valid UTF-8.
  return report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool all_passed(const std::vector<CheckResult>& results) {
  return count(results, Status::kFailed) == 0;
}

size_t columns_of(int fd) {
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return 0;
  return columns_of_terminal(fd);
}

bool wants_colours(int fd) {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  // Open MPI gives the first rank a terminal of its own, wherever its output goes in the end.
  if (std::getenv("OMPI_COMM_WORLD_RANK") != nullptr) return false;
  return isatty(fd) == 1 && (refused == nullptr || *refused == '\0') &&
         (terminal == nullptr || std::strcmp(terminal, "dumb") != 0);
}

}  // namespace accelerate::selftest
