// The progress bars at the bottom of the terminal of standard error, and what is written above
// them.
#pragma once

#include <cstdio>
#include <list>
#include <mutex>
#include <string>
#include <string_view>

namespace accelerate {

// The terminal has one bottom, whoever draws there: one of these in a process, at instance(). The
// first bar that was opened is the uppermost; each has one line. The cursor rests on the first
// one's line. Everything here is one write to standard error, from any thread.
class BarScreen {
 public:
  struct Bar {
    std::string text{};
    int columns = 0;  // of the text that stands there
  };
  using Handle = std::list<Bar>::iterator;

  static BarScreen& instance();

  // A new bar below the others; nothing is drawn yet.
  Handle open();
  // Replaces the text of the bar, which has no line break and fits into a line.
  void draw(Handle bar, std::string text);
  // Takes the bar away. Its last text stays, above the other bars, or is wiped off.
  void close(Handle bar, bool leave);
  // Writes `text`, which ends its line, to `stream` above the bars. Without bars just writes it.
  void write_above(std::FILE* stream, std::string_view text);

 private:
  int place_of(Handle bar);
  // All bars, and back to the first one's line.
  std::string all_bars() const;

  std::mutex mutex_;
  std::list<Bar> bars_;
};

// The bars of this process stay below `text`, which ends with a line break.
void write_above_bars(std::FILE* stream, std::string_view text);

}  // namespace accelerate
