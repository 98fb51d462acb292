// The last lines that a worker wrote, for the report when it fails.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

namespace accelerate::launch {

enum class StreamKind { kOut, kErr };

// Keeps the newest lines of both streams of one worker in the order in which they were completed.
// Memory is bounded: lines beyond kMaxLines and bytes beyond kMaxLineBytes a line are dropped.
// Lines are fit to print: no terminal control, and of a line that redrew itself (\r) what was last
// seen of it.
class LineTail {
 public:
  static constexpr size_t kMaxLines = 20;
  static constexpr size_t kMaxLineBytes = 400;

  void append(StreamKind stream, std::string_view bytes);

  // The lines, oldest first, without line ends; unfinished lines come last.
  std::deque<std::string> lines() const;

 private:
  struct OpenLine {
    std::string text;
    bool cut = false;
    bool restart = false;  // a \r was seen: the next character begins the line anew
  };

  static std::string printable(const OpenLine& line);
  void close_line(OpenLine& line);

  std::array<OpenLine, 2> open_;
  std::deque<std::string> closed_;
};

}  // namespace accelerate::launch
