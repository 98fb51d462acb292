#include "launch/line_tail.h"

namespace accelerate::launch {
namespace {

// Skips the escape sequence that begins at text[at]; returns the index of its last character.
size_t end_of_escape(std::string_view text, size_t at) {
  if (at + 1 >= text.size() || text[at + 1] != '[') return at;
  size_t end = at + 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return end;
}

}  // namespace

void LineTail::append(StreamKind stream, std::string_view bytes) {
  OpenLine& line = open_[static_cast<size_t>(stream)];
  for (const char c : bytes) {
    if (c == '\n') {
      close_line(line);
      continue;
    }
    if (c == '\r') {
      line.restart = true;
      continue;
    }
    if (line.restart) line = OpenLine{};
    if (line.text.size() < kMaxLineBytes) {
      line.text += c;
    } else {
      line.cut = true;
    }
  }
}

std::string LineTail::printable(const OpenLine& line) {
  std::string text;
  for (size_t at = 0; at < line.text.size(); ++at) {
    const auto c = static_cast<unsigned char>(line.text[at]);
    if (c == 0x1b) {
      at = end_of_escape(line.text, at);
    } else if (c == '\t' || (c >= 0x20 && c != 0x7f)) {
      text += static_cast<char>(c);
    } else {
      text += '?';
    }
  }
  if (line.cut) text += " [...]";
  return text;
}

void LineTail::close_line(OpenLine& line) {
  closed_.push_back(printable(line));
  if (closed_.size() > kMaxLines) closed_.pop_front();
  line = OpenLine{};
}

std::deque<std::string> LineTail::lines() const {
  std::deque<std::string> lines = closed_;
  for (const OpenLine& line : open_) {
    if (!line.text.empty()) lines.push_back(printable(line));
  }
  while (lines.size() > kMaxLines) lines.pop_front();
  return lines;
}

}  // namespace accelerate::launch
