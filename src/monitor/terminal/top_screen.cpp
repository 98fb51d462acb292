#include "monitor/terminal/top_screen.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string_view>
#include <vector>

#include "base/printable_text.h"
#include "base/terminal_width.h"

namespace accelerate::monitor {
namespace {

std::string formatted(const char* format, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return "nan";
  const double size = std::abs(value);
  if (size != 0 && (size < 1e-3 || size >= 1e7)) return formatted("%.3g", value);
  if (size >= 1000) return formatted("%.0f", value);
  return formatted(size >= 10 ? "%.2f" : "%.4f", value);
}

std::string short_bytes(uint64_t bytes) {
  const double value = static_cast<double>(bytes);
  if (value >= 1e12) return formatted("%.1f TB", value / 1e12);
  if (value >= 1e9) return formatted("%.1f GB", value / 1e9);
  return formatted("%.0f MB", value / 1e6);
}

std::string short_time(double seconds) {
  if (seconds < 0) seconds = 0;
  if (seconds < 1) return formatted("%.0f ms", seconds * 1e3);
  if (seconds < 60) return formatted("%.1f s", seconds);
  const auto whole = static_cast<int64_t>(seconds);
  std::array<char, 64> text{};
  if (whole < 3600) {
    std::snprintf(text.data(), text.size(), "%lld:%02lld", static_cast<long long>(whole / 60),
                  static_cast<long long>(whole % 60));
  } else {
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld",
                  static_cast<long long>(whole / 3600), static_cast<long long>(whole / 60 % 60),
                  static_cast<long long>(whole % 60));
  }
  return text.data();
}

std::string in_columns(std::string_view text, size_t width) {
  const std::string shown = first_columns(text, width);
  return shown + std::string(width - columns_of_text(shown), ' ');
}

std::string right(std::string_view text, size_t width) {
  const std::string shown = first_columns(text, width);
  return std::string(width - columns_of_text(shown), ' ') + shown;
}

// --- Lines -------------------------------------------------------------------------------------

class Screen {
 public:
  Screen(const ScreenSize& size, bool has_colours) : size_(size), has_colours_(has_colours) {}

  // `mark` is an escape sequence of a colour for the whole line.
  void line(std::string_view text, std::string_view mark = "") {
    if (is_full()) return;
    const std::string shown = first_columns(text, size_.columns);
    const bool is_marked = has_colours_ && !mark.empty();
    lines_.push_back(is_marked ? std::string(mark) + shown + "\x1b[0m" : shown);
  }
  void heading(std::string_view text) {
    line("");
    line(text, "\x1b[1m");
  }
  bool is_full() const { return size_.rows > 0 && lines_.size() >= size_.rows; }
  size_t columns() const { return size_.columns; }
  std::string text() const {
    std::string all;
    for (size_t i = 0; i < lines_.size(); ++i) {
      const bool is_last_row = size_.rows > 0 && i + 1 == size_.rows;
      all += lines_[i] + (is_last_row ? "" : "\n");
    }
    return all;
  }

 private:
  const ScreenSize size_;
  const bool has_colours_;
  std::vector<std::string> lines_;
};

constexpr std::string_view kRed = "\x1b[31m";
constexpr std::string_view kGreen = "\x1b[32m";
constexpr std::string_view kYellow = "\x1b[33m";
constexpr std::string_view kFaint = "\x1b[2m";

std::string_view colour_of(RankState state) {
  if (state == RankState::kFailed) return kRed;
  if (state == RankState::kWaiting || state == RankState::kSaving) return kYellow;
  return state == RankState::kSucceeded ? kGreen : "";
}

void add_head(Screen& screen, const RunFolder& run) {
  const RunView& view = run.view();
  const bool is_running = view.state() == RunState::kRunning;
  std::string state = run.is_silent() ? "silent" : name_of(view.state());
  if (view.exit_code() && *view.exit_code() != 0) {
    state += " (exit code " + std::to_string(*view.exit_code()) + ")";
  }
  const double end = is_running && !run.is_silent() ? unix_now() : view.last_heard();
  std::string text = printable_text(run.name()) + "  " + printable_text(view.program(), 60) + "  " +
                     state + "  " + short_time(end - view.began());
  if (view.world_size() > 0) text += "  " + std::to_string(view.world_size()) + " ranks";
  if (view.restarts() > 0) {
    text +=
        "  " + std::to_string(view.restarts()) + (view.restarts() == 1 ? " restart" : " restarts");
  }
  const bool is_bad = view.state() == RunState::kFailed || run.is_silent();
  screen.line(text, is_bad ? "\x1b[1;31m" : "\x1b[1m");
  for (const std::string& problem : view.problems()) screen.line(printable_text(problem), kRed);
}

void add_curve(Screen& screen, const std::string& name, const Series& series,
               const std::string& unit) {
  if (series.points().empty() || screen.is_full()) return;
  constexpr size_t kName = 24;
  constexpr size_t kNumber = 14;
  const size_t width = screen.columns() > kName + kNumber + 12
                           ? std::min<size_t>(screen.columns() - kName - kNumber - 2, 100)
                           : 10;
  screen.line(in_columns(printable_text(name), kName) +
              right(short_number(series.points().back().value) + unit, kNumber) + "  " +
              spark_line(series, width));
}

void add_parts(Screen& screen, const RunView& view) {
  if (view.ranks().empty()) return;
  const RankView& first = view.ranks().begin()->second;
  if (first.step_seconds <= 0) return;
  std::string text;
  double rest = first.step_seconds;
  for (const auto& [name, seconds] : first.parts) {
    if (name != "exchange") rest -= seconds;  // it runs beside the others
    text += "  " + printable_text(name, 40) + " " +
            formatted("%.0f%%", 100 * seconds / first.step_seconds);
  }
  text += "  rest " + formatted("%.0f%%", 100 * std::max(0.0, rest) / first.step_seconds);
  screen.line(in_columns("step of rank " + std::to_string(first.rank), 24) + text);
}

std::string activity_of(const RankView& rank, double now) {
  if (!rank.ended.empty()) return rank.ended;
  if (rank.activity.empty() && rank.operation.empty()) return "";
  std::string text = rank.state == RankState::kWaiting ? "waits in " : "in ";
  text += rank.activity.empty() ? rank.operation : rank.activity;
  return text + " for " + short_time(now - rank.since);
}

void add_ranks(Screen& screen, const RunFolder& run) {
  const RunView& view = run.view();
  if (view.ranks().empty()) return;
  const bool is_live = view.state() == RunState::kRunning && !run.is_silent();
  const double now = is_live ? unix_now() : view.last_heard();
  bool several_hosts = false;
  for (const auto& [number, rank] : view.ranks()) {
    several_hosts = several_hosts || rank.host != view.ranks().begin()->second.host;
  }
  screen.heading("RANK  STATE       STEP  STEP TIME  SAMPLES/S  CPUS    MEMORY  " +
                 std::string(several_hosts ? "HOST          " : "") + "NOW");
  for (const auto& [number, rank] : view.ranks()) {
    const std::string samples =
        rank.samples_per_second > 0 ? short_number(rank.samples_per_second) : "-";
    std::string text = right(std::to_string(number), 4) + "  " +
                       in_columns(name_of(rank.state), 8) + right(std::to_string(rank.steps), 8) +
                       right(short_time(rank.step_seconds), 11) + right(samples, 11) +
                       right(formatted("%.1f", rank.processors), 6) +
                       right(short_bytes(rank.memory_bytes), 10) + "  ";
    if (several_hosts) text += in_columns(printable_text(rank.host), 12) + "  ";
    text += printable_text(activity_of(rank, now));
    screen.line(text, colour_of(rank.state));
  }
}

void add_devices(Screen& screen, const RunView& view) {
  if (view.devices().empty()) return;
  screen.heading("DEVICE                          BUSY   MEMORY");
  for (const DeviceView& device : view.devices()) {
    const bool is_gpu = device.kind == run_record::DeviceKind::kGpu;
    const std::string name = is_gpu ? "GPU " + std::to_string(device.index) + " " + device.name
                                    : device.host + ", " + device.name;
    std::string text = in_columns(printable_text(name), 30) +
                       right(formatted("%.0f%%", 100 * device.busy), 6) + "   " +
                       short_bytes(device.used_bytes) + " of " + short_bytes(device.memory_bytes);
    if (device.watts > 0) text += formatted("   %.0f W", device.watts);
    if (device.celsius > 0) text += formatted("   %.0f °C", device.celsius);
    screen.line(text);
  }
}

void add_checkpoints(Screen& screen, const RunView& view) {
  if (view.checkpoints().empty()) return;
  constexpr size_t kShown = 3;
  screen.heading("CHECKPOINTS");
  const auto& all = view.checkpoints();
  for (size_t i = all.size() - std::min(kShown, all.size()); i < all.size(); ++i) {
    const CheckpointView& each = all[i];
    const std::string how = each.is_open ? "under way" : each.failed ? "failed" : "";
    screen.line(right(short_time(each.began - view.began()), 9) + "  " +
                    in_columns(printable_text(each.what), 50) + "  " +
                    (how.empty() ? short_time(each.seconds) : how),
                each.failed ? kRed : "");
  }
}

// Of the rank that failed first, or the first one.
void add_lines(Screen& screen, const RunView& view) {
  const RankView* shown = nullptr;
  for (const auto& [number, rank] : view.ranks()) {
    if (rank.lines.empty()) continue;
    const bool is_worse =
        shown != nullptr && shown->state != RankState::kFailed && rank.state == RankState::kFailed;
    if (shown == nullptr || is_worse) shown = &rank;
  }
  if (shown == nullptr) return;
  screen.heading("LAST LINES OF RANK " + std::to_string(shown->rank));
  for (const std::string& line : shown->lines)
    screen.line("  " + printable_text(line, 400), kFaint);
}

}  // namespace

std::string spark_line(const Series& series, size_t columns) {
  static constexpr std::array<std::string_view, 8> kBlocks = {"▁", "▂", "▃", "▄",
                                                              "▅", "▆", "▇", "█"};
  const auto& points = series.points();
  if (points.empty() || columns == 0) return "";
  const size_t bins = std::min(columns, points.size());
  std::vector<double> means(bins, std::numeric_limits<double>::quiet_NaN());
  double least = std::numeric_limits<double>::infinity();
  double most = -least;
  for (size_t bin = 0; bin < bins; ++bin) {
    double sum = 0;
    size_t count = 0;
    for (size_t i = bin * points.size() / bins; i < (bin + 1) * points.size() / bins; ++i) {
      if (!std::isfinite(points[i].value)) continue;
      sum += points[i].value;
      ++count;
    }
    if (count == 0) continue;
    means[bin] = sum / static_cast<double>(count);
    least = std::min(least, means[bin]);
    most = std::max(most, means[bin]);
  }
  std::string line;
  for (const double mean : means) {
    if (!std::isfinite(mean)) {
      line += " ";
      continue;
    }
    const double height = most > least ? (mean - least) / (most - least) : 0.5;
    line += kBlocks[static_cast<size_t>(std::lround(height * 7))];
  }
  return line;
}

std::string top_screen(const RunFolder& run, const ScreenSize& size, bool has_colours) {
  const RunView& view = run.view();
  Screen screen(size, has_colours);
  add_head(screen, run);
  screen.line("");
  constexpr size_t kMostValues = 8;
  size_t shown = 0;
  for (const auto& [name, series] : view.values()) {
    if (shown++ < kMostValues) add_curve(screen, name, series, "");
  }
  add_curve(screen, "step time", view.step_time(), " ms");
  add_curve(screen, view.knows_samples() ? "samples/s, all ranks" : "steps/s", view.throughput(),
            "");
  add_parts(screen, view);
  add_ranks(screen, run);
  add_devices(screen, view);
  add_checkpoints(screen, view);
  add_lines(screen, view);
  return screen.text();
}

}  // namespace accelerate::monitor
