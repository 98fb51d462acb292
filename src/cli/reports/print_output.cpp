#include "cli/reports/print_output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/terminal_colours.h"

namespace accelerate::cli {
namespace {

// Where the lines go on that `line` is broken into.
size_t continuation_column(const std::string& line, size_t width) {
  const size_t first = line.find_first_not_of(' ');
  if (first == std::string::npos || first == 0) return 0;
  const size_t gap = line.find("  ", first);
  const size_t description =
      gap == std::string::npos ? std::string::npos : line.find_first_not_of(' ', gap);
  return description != std::string::npos && description < width / 2 + 5 ? description : first;
}

std::string wrapped_line(std::string line, size_t width) {
  std::string result;
  const size_t column = continuation_column(line, width);
  while (line.size() > width) {
    size_t end = line.rfind(' ', width);
    const size_t first_word = line.find_first_not_of(' ', result.empty() ? 0 : column);
    if (end == std::string::npos || end <= std::max(column, first_word)) {
      end = line.find(' ', std::max(column, first_word));
    }
    if (end == std::string::npos) break;
    result += line.substr(0, line.find_last_not_of(' ', end) + 1) + "\n";
    const size_t next = line.find_first_not_of(' ', end);
    if (next == std::string::npos) return result.substr(0, result.size() - 1);
    line = std::string(column, ' ') + line.substr(next);
  }
  return result + line;
}

}  // namespace

void print_output(const std::string& text) {
  const std::string shown = coloured_output(text, shows_colours(STDOUT_FILENO));
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

std::string wrapped_lines(const std::string& text, size_t width) {
  std::string result;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    result += wrapped_line(text.substr(begin, end - begin), width);
    if (end < text.size()) result += '\n';
    begin = end + 1;
  }
  return result;
}

}  // namespace accelerate::cli
