#include "cli/wizard_terminal.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <optional>
#include <string_view>

#include "cli/wizard_input.h"
#include "cli/wizard_prompter.h"

namespace accelerate::cli {
namespace {

constexpr char kCtrlC = 3;
constexpr char kCtrlD = 4;
constexpr char kEscape = 27;
constexpr timespec kEscapeSequence{0, 50'000'000};  // the bytes of one key come together

constexpr size_t kNarrowest = 10;  // columns below which a width is not believed

// Keys arrive one by one and unseen while this lives; the cursor is hidden.
class RawTerminal {
 public:
  RawTerminal() {
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO | ISIG));
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    print_to_person("\x1b[?25l");
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal() {
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    print_to_person("\x1b[?25h");
  }

 private:
  termios before_{};
};

enum class Key { kUp, kDown, kFirst, kLast, kEnter, kDigit, kOther };

struct KeyPress {
  Key key = Key::kOther;
  size_t digit = 0;
};

// What follows the byte that every arrow key begins with. It is read to its end: what is left of
// ESC [1;2A, an arrow with Shift, would be taken for the key 1.
Key read_escape_sequence(const WizardInput& input) {
  const auto next = [&] { return input.read_byte(&kEscapeSequence).value_or(0); };
  const char introducer = next();
  if (introducer != '[' && introducer != 'O') return Key::kOther;
  char last = next();
  bool has_parameters = false;
  while (last >= 0x20 && last <= 0x3f) {
    has_parameters = true;
    last = next();
  }
  if (has_parameters) return Key::kOther;
  switch (last) {
    case 'A':
      return Key::kUp;
    case 'B':
      return Key::kDown;
    case 'H':
      return Key::kFirst;
    case 'F':
      return Key::kLast;
    default:
      return Key::kOther;
  }
}

KeyPress read_key(const WizardInput& input) {
  const std::optional<char> c = input.read_byte();
  if (!c) throw Interrupted(input.stop_signal() != 0 ? input.stop_signal() : SIGINT);
  if (*c == kCtrlC || *c == kCtrlD) throw Interrupted(SIGINT);
  if (*c >= '0' && *c <= '9') return {Key::kDigit, static_cast<size_t>(*c - '0')};
  switch (*c) {
    case '\r':
    case '\n':
      return {Key::kEnter};
    case 'k':
      return {Key::kUp};
    case 'j':
      return {Key::kDown};
    case kEscape:
      return {read_escape_sequence(input)};
    default:
      return {Key::kOther};
  }
}

// How many letters fit into a line of the menu, after what points at the chosen one.
size_t letters_of_a_line() {
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= kNarrowest;
  return is_known ? size.ws_col - std::string_view("> ").size() - 1 : std::string::npos;
}

// The first letters of a text in UTF-8.
std::string first_letters(const std::string& text, size_t count) {
  size_t letters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins_letter = (static_cast<unsigned char>(text[i]) & 0xc0) != 0x80;
    if (begins_letter && ++letters > count) return text.substr(0, i);
  }
  return text;
}

// Every option is one line, however narrow the terminal is: the menu is redrawn by its lines.
std::string menu(const std::vector<std::string>& options, size_t chosen) {
  std::string text;
  const size_t width = letters_of_a_line();
  for (size_t i = 0; i < options.size(); ++i) {
    const bool is_chosen = i == chosen;
    text += "\r\x1b[K" + std::string(is_chosen ? "\x1b[1m> " : "  ") +
            first_letters(options[i], width) + (is_chosen ? "\x1b[0m" : "") + "\n";
  }
  return text;
}

// Back over the menu, which is gone then.
std::string erased(size_t lines) { return "\x1b[" + std::to_string(lines) + "A\x1b[J"; }

size_t moved(size_t chosen, const KeyPress& press, size_t count) {
  switch (press.key) {
    case Key::kUp:
      return chosen == 0 ? count - 1 : chosen - 1;
    case Key::kDown:
      return chosen + 1 == count ? 0 : chosen + 1;
    case Key::kFirst:
      return 0;
    case Key::kLast:
      return count - 1;
    case Key::kDigit:
      return press.digit < count ? press.digit : chosen;
    default:
      return chosen;
  }
}

}  // namespace

size_t choose_in_terminal(const WizardInput& input, const std::string& question,
                          const std::vector<std::string>& options, size_t preset) {
  const RawTerminal terminal;
  size_t chosen = preset;
  print_to_person(question + "\n" + menu(options, chosen));
  while (true) {
    const KeyPress press = read_key(input);
    if (press.key == Key::kEnter) break;
    chosen = moved(chosen, press, options.size());
    print_to_person("\x1b[" + std::to_string(options.size()) + "A" + menu(options, chosen));
  }
  print_to_person(erased(options.size()) + "  " + options[chosen] + "\n");
  return chosen;
}

}  // namespace accelerate::cli
