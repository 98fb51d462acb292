#include "base/terminal_colours.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/environment.h"

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

std::string coloured_message(std::string_view line) {
  constexpr std::string_view kError = "error:";
  if (line.starts_with(kError)) {
    return painted(kError, kRed) + std::string(line.substr(kError.size()));
  }
  return line.starts_with("  try  ") ? painted(line, kCyan) : std::string(line);
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

std::string coloured_messages(std::string_view text, bool is_on) {
  return is_on ? line_by_line(text, coloured_message) : std::string(text);
}

std::string coloured_output(std::string_view text, bool is_on) {
  return is_on ? line_by_line(text, coloured_line) : std::string(text);
}

}  // namespace accelerate
