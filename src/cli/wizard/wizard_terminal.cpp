#include "cli/wizard/wizard_terminal.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "accelerate/errors.h"
#include "base/terminal_width.h"
#include "cli/wizard/wizard_keys.h"
#include "cli/wizard/wizard_prompter.h"

namespace accelerate::cli {
namespace {

constexpr const char* kMenuKeys = "arrows or digit: choose  Enter: accept  b: back  Esc: quit";
constexpr const char* kLineKeys = "Enter: accept  up arrow: back  Esc: quit";

std::string dimmed(const std::string& text) { return "\x1b[2m" + text + "\x1b[0m"; }

// Every option is one line, however narrow the terminal is: the menu is redrawn by its lines.
std::string menu(const std::vector<std::string>& options, size_t chosen) {
  std::string text;
  const size_t width = terminal_columns() - std::string_view("> ").size() - 1;
  for (size_t i = 0; i < options.size(); ++i) {
    const bool is_chosen = i == chosen;
    text += "\r\x1b[K" + std::string(is_chosen ? "\x1b[1m> " : "  ") +
            first_columns(std::to_string(i) + "  " + options[i], width) +
            (is_chosen ? "\x1b[0m" : "") + "\n";
  }
  return text + "\r\x1b[K" + dimmed(first_columns(std::string("  ") + kMenuKeys, width)) + "\n";
}

// Back over that many lines, which are gone then.
std::string erased(size_t lines) { return "\x1b[" + std::to_string(lines) + "A\x1b[J"; }

// The option that a letter stands for, where y or n answers the question.
std::optional<size_t> answered(const std::string& letter, const std::vector<std::string>& options) {
  if (letter != "y" && letter != "n") return std::nullopt;
  const auto found = std::find(options.begin(), options.end(), letter == "y" ? "yes" : "no");
  if (found == options.end()) return std::nullopt;
  return static_cast<size_t>(found - options.begin());
}

size_t moved(size_t chosen, const KeyPress& press, const std::vector<std::string>& options) {
  const size_t count = options.size();
  switch (press.key) {
    case Key::kUp:
      return chosen == 0 ? count - 1 : chosen - 1;
    case Key::kDown:
      return chosen + 1 == count ? 0 : chosen + 1;
    case Key::kFirst:
      return 0;
    case Key::kLast:
      return count - 1;
    case Key::kText:
      if (press.text == "k") return chosen == 0 ? count - 1 : chosen - 1;
      if (press.text == "j") return chosen + 1 == count ? 0 : chosen + 1;
      if (press.text >= "0" && press.text <= "9" && press.text.size() == 1) {
        const auto digit = static_cast<size_t>(press.text[0] - '0');
        return digit < count ? digit : chosen;
      }
      return answered(press.text, options).value_or(chosen);
    default:
      return chosen;
  }
}

bool goes_back(const KeyPress& press) {
  return press.key == Key::kLeft || press.key == Key::kBackspace ||
         (press.key == Key::kText && press.text == "b");
}

// A line while it is typed, and the place in it.
class LineEditor {
 public:
  void apply(const KeyPress& press) {
    const auto begin = letters_.begin();
    switch (press.key) {
      case Key::kText:
        letters_.insert(begin + offset(place_), press.text);
        ++place_;
        break;
      case Key::kLeft:
        if (place_ > 0) --place_;
        break;
      case Key::kRight:
        if (place_ < letters_.size()) ++place_;
        break;
      case Key::kFirst:
        place_ = 0;
        break;
      case Key::kLast:
        place_ = letters_.size();
        break;
      case Key::kBackspace:
        if (place_ > 0) letters_.erase(begin + offset(--place_));
        break;
      case Key::kDelete:
      case Key::kEnd:
        if (place_ < letters_.size()) letters_.erase(begin + offset(place_));
        break;
      case Key::kEraseLine:
        letters_.erase(begin, begin + offset(place_));
        place_ = 0;
        break;
      case Key::kEraseRest:
        letters_.erase(begin + offset(place_), letters_.end());
        break;
      case Key::kEraseWord:
        erase_word();
        break;
      default:
        break;
    }
  }

  std::string text() const { return joined(0, letters_.size()); }

  // What fits into so many columns around the place, and the cursor put there.
  std::string drawn(size_t columns) const {
    const size_t first = place_ < columns ? 0 : place_ - columns + 1;
    const size_t end = std::min(letters_.size(), first + columns);
    std::string shown = joined(first, end);
    if (end > place_) shown += "\x1b[" + std::to_string(end - place_) + "D";
    return shown;
  }

 private:
  static ptrdiff_t offset(size_t place) { return static_cast<ptrdiff_t>(place); }
  std::string joined(size_t first, size_t end) const {
    std::string text;
    for (size_t i = first; i < end; ++i) text += letters_[i];
    return text;
  }
  void erase_word() {
    size_t first = place_;
    while (first > 0 && letters_[first - 1] == " ") --first;
    while (first > 0 && letters_[first - 1] != " ") --first;
    letters_.erase(letters_.begin() + offset(first), letters_.begin() + offset(place_));
    place_ = first;
  }

  std::vector<std::string> letters_;  // characters of one column each
  size_t place_ = 0;                  // before which the cursor stands
};

}  // namespace

size_t choose_in_terminal(const WizardInput& input, const std::string& question,
                          const std::vector<std::string>& options, size_t preset) {
  const RawTerminal terminal(RawTerminal::Cursor::kHidden);
  const size_t lines = options.size() + 1;
  size_t chosen = preset;
  print_to_person(question + "\n" + menu(options, chosen));
  while (true) {
    const KeyPress press = read_key(input);
    if (press.key == Key::kEnter) break;
    if (press.key == Key::kEscape || press.key == Key::kEnd) throw Interrupted(SIGINT);
    if (goes_back(press)) {
      print_to_person(erased(lines + 1));
      throw WentBack();
    }
    chosen = moved(chosen, press, options);
    print_to_person("\x1b[" + std::to_string(lines) + "A" + menu(options, chosen));
  }
  print_to_person(erased(lines) + "  " + options[chosen] + "\n");
  return chosen;
}

std::string edit_line_in_terminal(const WizardInput& input, const std::string& question,
                                  const std::string& preset) {
  const RawTerminal terminal(RawTerminal::Cursor::kShown);
  const std::string prompt = question + (preset.empty() ? ": " : " [" + preset + "]: ");
  const size_t width = terminal_columns();
  // A long question has lines of its own, and the answer one below.
  const bool is_long = prompt.size() + 10 > width;
  const std::string before = is_long ? "" : prompt;
  // The keys stand below the line, and the cursor goes back up.
  print_to_person((is_long ? prompt + "\n" : "") + before + "\n" +
                  dimmed(first_columns(std::string("  ") + kLineKeys, width - 1)) + "\x1b[A\r");
  const auto leave = [&](const std::string& shown) {
    print_to_person("\r\x1b[J" + before + shown + "\n");
  };
  LineEditor line;
  while (true) {
    print_to_person("\r\x1b[K" + before + line.drawn(width - before.size() - 1));
    KeyPress press;
    try {
      press = read_key(input);
    } catch (const Interrupted&) {
      leave(line.text());
      throw;
    }
    if (press.key == Key::kEnter) break;
    const bool is_end = press.key == Key::kEnd && line.text().empty();
    if (press.key != Key::kEscape && press.key != Key::kUp && !is_end) {
      line.apply(press);
      continue;
    }
    if (press.key == Key::kUp) {
      print_to_person("\r" + (is_long ? erased((prompt.size() + width - 1) / width) : "\x1b[J"));
      throw WentBack();
    }
    leave(line.text());
    if (press.key == Key::kEscape) throw Interrupted(SIGINT);
    refuse_end_of_input();
  }
  leave(line.text());
  return line.text().empty() ? preset : line.text();
}

}  // namespace accelerate::cli
