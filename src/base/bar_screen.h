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
// first bar that was opened is the uppermost; each has one line. The cursor rests behind the last
// one, so that what the shell prints after Ctrl-C comes below all of them. Everything here is one
// write to standard error, from any thread.
//
// In a notebook the bars, and what they left behind, are one output below the cell, which is
// replaced at each drawing; the next bar after the last one has ended begins another.
class BarScreen {
 public:
  struct Bar {
    std::string text{};
    int columns = 0;  // of the text that stands there
  };
  using Handle = std::list<Bar>::iterator;

  static BarScreen& instance();
  // Whether bars are drawn in a notebook: they would be on standard error, and that is no terminal.
  static bool is_in_notebook();

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
  // Back to the first column of the first bar, and everything from there on wiped off.
  std::string wipe() const;
  // All bars.
  std::string draw_all();
  void show_in_cell() const;

  std::mutex mutex_;
  std::list<Bar> bars_;
  int drawn_lines_ = 0;  // on the terminal; the cursor is in the last one
  // Of a notebook: the output that is shown now, and the lines of bars in it that have ended.
  std::string cell_output_;
  std::string ended_;
};

// The bars of this process stay below `text`, which ends with a line break.
void write_above_bars(std::FILE* stream, std::string_view text);

}  // namespace accelerate
