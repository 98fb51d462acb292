#include "base/bar_screen.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/notebook_channel.h"
#include "base/terminal_width.h"

namespace accelerate {
namespace {

std::string lines_up(int lines) {
  return lines == 0 ? std::string() : "\x1b[" + std::to_string(lines) + "A";
}

void write_to(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

}  // namespace

BarScreen& BarScreen::instance() {
  static auto* screen = new BarScreen();  // never destroyed: logs come until the very end
  return *screen;
}

bool BarScreen::is_in_notebook() { return isatty(STDERR_FILENO) != 1 && has_notebook_channel(); }

BarScreen::Handle BarScreen::open() {
  const std::lock_guard lock(mutex_);
  if (bars_.empty() && is_in_notebook()) {
    static int count = 0;
    cell_output_ = "progress " + std::to_string(getpid()) + " " + std::to_string(++count);
    ended_.clear();
  }
  return bars_.insert(bars_.end(), Bar{});
}

void BarScreen::draw(Handle bar, std::string text) {
  const std::lock_guard lock(mutex_);
  if (!cell_output_.empty()) {
    bar->text = std::move(text);
    return show_in_cell();
  }
  const int place = place_of(bar);
  const auto columns = static_cast<int>(columns_of_text(text));
  const auto leftover = static_cast<size_t>(std::max(0, bar->columns - columns));
  *bar = {std::move(text), columns};
  const int cursor = std::max(0, drawn_lines_ - 1);
  std::string drawing = place > cursor ? std::string(static_cast<size_t>(place - cursor), '\n')
                                       : lines_up(cursor - place);
  drawing += "\r" + bar->text + std::string(leftover, ' ');
  if (place < cursor) {
    drawing += std::string(static_cast<size_t>(cursor - place), '\n') + "\r" +
               std::next(bars_.begin(), cursor)->text;
  }
  drawn_lines_ = std::max(drawn_lines_, place + 1);
  write_to(stderr, drawing);
}

void BarScreen::close(Handle bar, bool leave) {
  const std::lock_guard lock(mutex_);
  const std::string text = bar->text;
  const bool is_alone = bars_.size() == 1;
  bars_.erase(bar);
  if (!cell_output_.empty()) {
    if (leave) ended_ += text + "\n";
    show_in_cell();
    if (is_alone) cell_output_.clear();
    return;
  }
  if (is_alone && leave) {
    drawn_lines_ = 0;
    return write_to(stderr, "\n");  // it stands where it should
  }
  std::string change = wipe();
  if (leave) change += text + "\n";
  write_to(stderr, change + draw_all());
}

void BarScreen::write_above(std::FILE* stream, std::string_view text) {
  const std::lock_guard lock(mutex_);
  // A stream that goes elsewhere leaves the terminal alone, and so do all in a notebook.
  if (bars_.empty() || !cell_output_.empty() || (stream != stderr && isatty(fileno(stream)) != 1)) {
    return write_to(stream, text);
  }
  if (stream == stderr) {
    return write_to(stderr, wipe() + std::string(text) + draw_all());
  }
  write_to(stderr, wipe());
  write_to(stream, text);
  write_to(stderr, draw_all());
}

int BarScreen::place_of(Handle bar) { return static_cast<int>(std::distance(bars_.begin(), bar)); }

std::string BarScreen::wipe() const { return lines_up(std::max(0, drawn_lines_ - 1)) + "\r\x1b[J"; }

std::string BarScreen::draw_all() {
  std::string drawing;
  drawn_lines_ = 0;
  for (const Bar& bar : bars_) {
    if (drawn_lines_++ > 0) drawing += '\n';
    drawing += "\r" + bar.text;
  }
  return drawing;
}

void BarScreen::show_in_cell() const {
  std::string text = ended_;
  for (const Bar& bar : bars_) text += bar.text + "\n";
  if (!text.empty()) text.pop_back();
  // A drawing for which there is no room is left out: a loop does not wait for its bar.
  show_in_notebook({{"text/plain", text}}, cell_output_, std::chrono::milliseconds(0));
}

void write_above_bars(std::FILE* stream, std::string_view text) {
  BarScreen::instance().write_above(stream, text);
}

}  // namespace accelerate
