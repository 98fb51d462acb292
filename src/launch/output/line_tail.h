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

  // What the newest uncaught exception said, however many lines came after it: the text after
  // what(): of a C++ program with its type, an error of the library that the program printed, the
  // last line of a Python traceback. "" if none was seen.
  std::string exception() const;

 private:
  struct OpenLine {
    std::string text;
    bool cut = false;
    bool restart = false;  // a \r was seen: the next character begins the line anew
  };

  static std::string printable(const OpenLine& line);
  void close_line(size_t stream);
  void look_for_exception(size_t stream, const std::string& line);

  std::array<OpenLine, 2> open_;
  std::deque<std::string> closed_;
  std::array<bool, 2> in_traceback_{};  // the lines of a Python traceback are being read
  std::string exception_type_;          // of a C++ program that is about to end
  std::string exception_;
};

}  // namespace accelerate::launch
