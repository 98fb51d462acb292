#include "base/terminal_colours.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/environment.h"
#include "base/terminal_width.h"

namespace accelerate {
namespace {

constexpr const char* kRed = "\x1b[1;31m";
constexpr const char* kGreen = "\x1b[32m";
constexpr const char* kCyan = "\x1b[36m";
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kPlain = "\x1b[0m";

std::string painted(std::string_view text, const char* colour) {
  return colour + std::string(text) + kPlain;
}

// `change` of every line, without its end.
template <class Change>
std::string line_by_line(std::string_view text, Change change) {
  std::string result;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    result += change(text.substr(0, end));
    if (end == std::string_view::npos) break;
    result += '\n';
    text.remove_prefix(end + 1);
  }
  return result;
}

constexpr size_t kLabelColumns = 7;     // of "error: ", "  at   " and "  try  "
constexpr size_t kNarrowTerminal = 40;  // columns below which breaking lines does not help

bool is_continuation(std::string_view line) { return line.find_first_not_of(' ') == kLabelColumns; }

bool has_label(std::string_view line) {
  return line.starts_with("error: ") || line.starts_with("  at   ") || line.starts_with("  try  ");
}

std::string wrapped_message(std::string_view line, size_t columns) {
  if (columns_of_text(line) <= columns || line.starts_with("    | ")) return std::string(line);
  const size_t blanks = std::min(line.find_first_not_of(' '), line.size());
  const size_t begin = has_label(line) ? kLabelColumns : blanks;
  const size_t indent = has_label(line) ? kLabelColumns : blanks + 2;
  return std::string(line.substr(0, begin)) +
         words_in_lines(line.substr(begin), begin, columns, indent);
}

// "Usage: accelerate env", "Output:", "DTYPE  LARGEST LAYER".
bool is_heading(std::string_view line) {
  if (line.empty() || std::isupper(static_cast<unsigned char>(line.front())) == 0) return false;
  if (line.starts_with("Usage: ") || line.ends_with(":")) return true;
  return line.find("  ") != std::string_view::npos &&
         std::none_of(line.begin(), line.end(),
                      [](unsigned char c) { return std::islower(c) != 0 || c >= 0x80; });
}

std::string with_painted(std::string_view line, std::string_view word, const char* colour) {
  const size_t at = line.find(word);
  return std::string(line.substr(0, at)) + painted(word, colour) +
         std::string(line.substr(at + word.size()));
}

std::string coloured_line(std::string_view line) {
  if (is_heading(line)) return painted(line, kBold);
  for (const char* bad : {"INCOMPLETE", "DAMAGED", "FAILED"}) {
    if (line.find(bad) != std::string_view::npos) return with_painted(line, bad, kRed);
  }
  if (line.ends_with("  complete")) return with_painted(line, "complete", kGreen);
  if (line.find(": good,") != std::string_view::npos) return with_painted(line, "good", kGreen);
  return std::string(line);
}

}  // namespace

bool shows_colours(int fd) {
  const std::string terminal = environment_variable("TERM").value_or("dumb");
  return isatty(fd) == 1 && environment_variable("NO_COLOR").value_or("").empty() &&
         terminal != "dumb" && !terminal.empty();
}

std::string wrapped_messages(std::string_view text, size_t columns) {
  return line_by_line(text, [&](std::string_view line) { return wrapped_message(line, columns); });
}

std::string fitted_messages(std::string_view text, int fd) {
  const size_t columns = columns_of_terminal(fd);
  return columns < kNarrowTerminal ? std::string(text) : wrapped_messages(text, columns);
}

std::string coloured_messages(std::string_view text, bool is_on) {
  if (!is_on) return std::string(text);
  bool is_hint = false;
  return line_by_line(text, [&](std::string_view line) {
    constexpr std::string_view kError = "error:";
    is_hint = line.starts_with("  try  ") || (is_hint && is_continuation(line));
    if (is_hint) return painted(line, kCyan);
    if (!line.starts_with(kError)) return std::string(line);
    return painted(kError, kRed) + std::string(line.substr(kError.size()));
  });
}

std::string coloured_output(std::string_view text, bool is_on) {
  return is_on ? line_by_line(text, coloured_line) : std::string(text);
}

}  // namespace accelerate
