#include "launch/output/line_tail.h"

namespace accelerate::launch {
namespace {

// Skips the escape sequence that begins at text[at]; returns the index of its last character.
size_t end_of_escape(std::string_view text, size_t at) {
  if (at + 1 >= text.size() || text[at + 1] != '[') return at;
  size_t end = at + 2;
  while (end < text.size() && (text[end] < '@' || text[end] > '~')) ++end;
  return end;
}

// The length of the character of several bytes (UTF-8) that begins at text[at]; 0 if there is none,
// or if it is one of those by which terminals are controlled (U+0080 to U+009F).
size_t printable_character(std::string_view text, size_t at) {
  const auto byte = [&](size_t index) {
    return index < text.size() ? static_cast<unsigned char>(text[index]) : 0U;
  };
  const unsigned first = byte(at);
  const size_t length = first >= 0xc2 && first < 0xe0   ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0U) != 0x80U) return 0;
  }
  return first == 0xc2 && byte(at + 1) < 0xa0 ? 0 : length;
}

// Whether `line` begins as the errors of the library do: "[rank 3 of 8] CommError: ".
bool names_rank_and_error(std::string_view line) {
  if (!line.starts_with("[rank ")) return false;
  const size_t end = line.find("] ");
  return end != std::string_view::npos &&
         line.find(' ', end + 2) == line.find("Error: ", end + 2) + 6;
}

}  // namespace

void LineTail::append(StreamKind stream, std::string_view bytes) {
  const auto index = static_cast<size_t>(stream);
  OpenLine& line = open_[index];
  for (const char c : bytes) {
    if (c == '\n') {
      close_line(index);
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
    } else if (c == '\t' || (c >= 0x20 && c < 0x7f)) {
      text += static_cast<char>(c);
    } else if (const size_t length = printable_character(line.text, at); length > 0) {
      text += line.text.substr(at, length);
      at += length - 1;
    } else if (line.cut && at + 4 > line.text.size() && c >= 0xc0) {
      break;  // the rest of a character that was cut
    } else {
      text += '?';
    }
  }
  if (line.cut) text += " [...]";
  return text;
}

void LineTail::close_line(size_t stream) {
  closed_.push_back(printable(open_[stream]));
  look_for_exception(stream, closed_.back());
  if (closed_.size() > kMaxLines) closed_.pop_front();
  open_[stream] = OpenLine{};
}

void LineTail::look_for_exception(size_t stream, const std::string& line) {
  constexpr std::string_view kTerminate = "terminate called after throwing an instance of '";
  constexpr std::string_view kWhat = "  what():  ";
  if (line == "Traceback (most recent call last):") {
    in_traceback_[stream] = true;
  } else if (in_traceback_[stream] && !line.empty() && line.front() != ' ') {
    in_traceback_[stream] = false;
    exception_ = line;
  } else if (line.starts_with(kTerminate)) {
    exception_ = exception_type_ =
        line.substr(kTerminate.size(), line.rfind('\'') - kTerminate.size());
  } else if (line.starts_with(kWhat) && !exception_type_.empty()) {
    const std::string said = line.substr(kWhat.size());
    exception_ = names_rank_and_error(said) ? said : exception_type_ + ": " + said;
    exception_type_.clear();
  } else if (names_rank_and_error(line)) {
    exception_ = line;
  }
}

std::string LineTail::exception() const {
  LineTail whole = *this;  // the last line may have no end
  for (size_t stream = 0; stream < open_.size(); ++stream) {
    if (!open_[stream].text.empty()) whole.close_line(stream);
  }
  return whole.exception_;
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
