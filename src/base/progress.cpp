#include "accelerate/progress.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string_view>

#include "base/bar_screen.h"
#include "base/environment.h"
#include "base/terminal_width.h"

namespace accelerate::detail {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRedrawInterval{100};
constexpr int kSmallestBar = 4;
constexpr int kNotebookColumns = 90;

int columns_of(std::string_view text) { return static_cast<int>(columns_of_text(text)); }

std::string cut_to(const std::string& text, int columns) {
  return first_columns(text, static_cast<size_t>(std::max(0, columns)));
}

// A line break inside the bar would leave pieces of it behind at each redraw.
std::string on_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return text;
}

std::string two_decimals(double value, const char* unit) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.2f%s", value, unit);
  return text.data();
}

std::string heading(const ProgressState& state) {
  return state.description.empty() ? "" : on_one_line(state.description) + ": ";
}

std::string filled_bar(double fraction, int width, bool blocks) {
  static constexpr std::array<const char*, 8> kEighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int steps = blocks ? 8 : 1;
  const int filled = static_cast<int>(fraction * width * steps);
  std::string bar;
  for (int i = 0; i < filled / steps; ++i) bar += blocks ? "█" : "#";
  if (blocks) bar += kEighths[static_cast<size_t>(filled % steps)];
  bar.append(static_cast<size_t>(width - columns_of(bar)), ' ');
  return bar;
}

bool draws_on_terminal(const std::ostream* stream) {
  return stream == nullptr && isatty(STDERR_FILENO) == 1;
}

// The terminal first: it knows when its window changed, COLUMNS only how wide it once was.
int terminal_columns() {
  const size_t known = columns_of_terminal(STDERR_FILENO);
  if (known > 0) return static_cast<int>(known);
  const int given = std::atoi(environment_variable("COLUMNS").value_or("").c_str());
  return given > 0 ? given : 80;
}

// Whether the locale of the terminal can show the block characters.
bool terminal_shows_blocks() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const std::string value = environment_variable(name).value_or("");
    if (value.empty()) continue;
    return value.find("UTF-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

// What can be said where nobody knows how much there is.
std::string format_endless(const ProgressState& state) {
  std::string text = heading(state) + std::to_string(state.done) + "it [" +
                     format_duration(state.elapsed_seconds) + ", " +
                     format_rate(state.done, state.elapsed_seconds);
  if (!state.postfix.empty()) text += ", " + on_one_line(state.postfix);
  return text + "]";
}

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(0.0, seconds));
  std::array<char, 64> text{};
  const long long hours = whole / 3600;
  const int minutes = static_cast<int>(whole / 60 % 60);
  const int rest = static_cast<int>(whole % 60);
  if (hours > 0) {
    std::snprintf(text.data(), text.size(), "%lld:%02d:%02d", hours, minutes, rest);
  } else {
    std::snprintf(text.data(), text.size(), "%02d:%02d", minutes, rest);
  }
  return text.data();
}

std::string format_rate(int64_t done, double elapsed_seconds) {
  if (done <= 0 || elapsed_seconds <= 0) return "?it/s";
  const double rate = static_cast<double>(done) / elapsed_seconds;
  return rate >= 1 ? two_decimals(rate, "it/s") : two_decimals(1 / rate, "s/it");
}

std::string format_bar(const ProgressState& state, int columns, bool blocks) {
  if (state.total < 0) return cut_to(format_endless(state), columns);
  const double fraction =
      state.total <= 0
          ? 1.0
          : std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0,
                       1.0);
  std::array<char, 16> percent{};
  std::snprintf(percent.data(), percent.size(), "%3d%%", static_cast<int>(fraction * 100));
  std::string remaining = "?";
  if (state.done > 0) {
    remaining =
        format_duration(state.elapsed_seconds * static_cast<double>(state.total - state.done) /
                        static_cast<double>(state.done));
  }
  const std::string left = heading(state) + percent.data() + "|";
  std::string right = "| " + std::to_string(state.done) + "/" + std::to_string(state.total) + " [" +
                      format_duration(state.elapsed_seconds) + "<" + remaining + ", " +
                      format_rate(state.done, state.elapsed_seconds);
  if (!state.postfix.empty()) right += ", " + on_one_line(state.postfix);
  right += "]";
  const int room = columns - columns_of(left) - columns_of(right);
  if (room < kSmallestBar) return cut_to(left.substr(0, left.size() - 1) + right, columns);
  return left + filled_bar(fraction, room, blocks) + right;
}

std::string format_line(const ProgressState& state) {
  std::string line = heading(state) + std::to_string(state.done);
  if (state.total >= 0) line += "/" + std::to_string(state.total);
  line += " in " + format_duration(state.elapsed_seconds) + ", " +
          format_rate(state.done, state.elapsed_seconds);
  if (!state.postfix.empty()) line += ", " + on_one_line(state.postfix);
  return line;
}

struct DrawnBar::Drawing {
  explicit Drawing(ProgressOptions options)
      : out(options.stream == nullptr ? std::cerr : *options.stream),
        leave(options.leave),
        line_interval(options.line_interval),
        notebook(options.stream == nullptr && BarScreen::is_in_notebook()),
        redrawn(notebook || draws_on_terminal(options.stream)),
        blocks(notebook || (redrawn && terminal_shows_blocks())) {
    state.description = std::move(options.description);
  }

  // One write, so that lines of several processes do not mix. Past the stream's error state: a bar
  // that cannot be written ends no training run, and passes end in a destructor.
  void write_line() {
    std::streambuf* buffer = out.rdbuf();
    if (buffer == nullptr) return;
    const std::string line = format_line(state) + "\n";
    buffer->sputn(line.data(), static_cast<std::streamsize>(line.size()));
    buffer->pubsync();
  }

  void redraw(Clock::time_point now) {
    measure(now);
    const int columns = notebook ? kNotebookColumns : terminal_columns() - 1;
    BarScreen::instance().draw(*on_screen, format_bar(state, columns, blocks));
    next_drawing = now + kRedrawInterval;
  }

  void measure(Clock::time_point now) {
    state.elapsed_seconds = std::chrono::duration<double>(now - started).count();
  }

  std::ostream& out;
  const bool leave;
  const std::chrono::milliseconds line_interval;
  const bool notebook;
  const bool redrawn;  // in place, rather than written line by line
  const bool blocks;
  ProgressState state;
  Clock::time_point started;
  Clock::time_point next_drawing;
  std::optional<BarScreen::Handle> on_screen;  // while a pass runs that is redrawn
};

DrawnBar::DrawnBar(bool enabled, ProgressOptions options) {
  if (enabled) drawing_ = std::make_unique<Drawing>(std::move(options));
}

DrawnBar::~DrawnBar() = default;

void DrawnBar::start(int64_t total) {
  if (!drawing_) return;
  drawing_->state.done = 0;
  drawing_->state.total = total;
  drawing_->state.postfix.clear();
  drawing_->started = Clock::now();
  drawing_->next_drawing = drawing_->started + drawing_->line_interval;
  if (!drawing_->redrawn) return;
  if (!drawing_->on_screen) drawing_->on_screen = BarScreen::instance().open();
  drawing_->redraw(drawing_->started);
}

void DrawnBar::advance(int64_t count) {
  if (!drawing_) return;
  drawing_->state.done += count;
  const Clock::time_point now = Clock::now();
  if (now < drawing_->next_drawing) return;
  if (drawing_->on_screen) return drawing_->redraw(now);
  // In a file a line now and then shows that the run goes on, and how fast.
  drawing_->measure(now);
  drawing_->write_line();
  drawing_->next_drawing = now + drawing_->line_interval;
}

void DrawnBar::finish() {
  if (!drawing_) return;
  if (drawing_->on_screen) {
    drawing_->redraw(Clock::now());
    BarScreen::instance().close(*drawing_->on_screen, drawing_->leave);
    drawing_->on_screen.reset();
  } else if (drawing_->leave) {
    drawing_->measure(Clock::now());
    drawing_->write_line();
  }
}

void DrawnBar::set_description(std::string description) {
  if (drawing_) drawing_->state.description = std::move(description);
}

void DrawnBar::set_postfix(std::string postfix) {
  if (drawing_) drawing_->state.postfix = std::move(postfix);
}

}  // namespace accelerate::detail
