#include "cli/wizard/wizard_keys.h"

#include <unistd.h>

#include <limits>
#include <optional>

#include "base/terminal_width.h"
#include "cli/wizard/wizard_prompter.h"

namespace accelerate::cli {
namespace {

constexpr char kEscapeByte = 27;
constexpr timespec kEscapeSequence{0, 50'000'000};  // the bytes of one key come together
constexpr size_t kNarrowest = 10;                   // columns below which a width is not believed

// What follows the byte that every arrow key begins with. It is read to its end: what is left of
// ESC [1;2A, an arrow with Shift, would be taken for the key 1.
Key read_escape_sequence(const WizardInput& input) {
  const std::optional<char> introducer = input.read_byte(&kEscapeSequence);
  if (!introducer) return Key::kEscape;
  if (*introducer != '[' && *introducer != 'O') return Key::kOther;
  const auto next = [&] { return input.read_byte(&kEscapeSequence).value_or(0); };
  std::string parameters;
  char last = next();
  while (last >= 0x20 && last <= 0x3f) {
    parameters += last;
    last = next();
  }
  if (last == '~' && (parameters == "1" || parameters == "7")) return Key::kFirst;
  if (last == '~' && (parameters == "4" || parameters == "8")) return Key::kLast;
  if (last == '~' && parameters == "3") return Key::kDelete;
  if (!parameters.empty()) return Key::kOther;
  switch (last) {
    case 'A':
      return Key::kUp;
    case 'B':
      return Key::kDown;
    case 'C':
      return Key::kRight;
    case 'D':
      return Key::kLeft;
    case 'H':
      return Key::kFirst;
    case 'F':
      return Key::kLast;
    default:
      return Key::kOther;
  }
}

constexpr char control(char letter) { return static_cast<char>(letter - 'a' + 1); }

Key control_key(char c) {
  if (c == control('a')) return Key::kFirst;
  if (c == control('e')) return Key::kLast;
  if (c == control('d')) return Key::kEnd;
  if (c == control('u')) return Key::kEraseLine;
  if (c == control('k')) return Key::kEraseRest;
  if (c == control('w')) return Key::kEraseWord;
  if (c == control('h') || c == 127) return Key::kBackspace;
  if (c == '\r' || c == '\n') return Key::kEnter;
  return Key::kOther;
}

// The rest of a character in UTF-8 that begins with `first`.
std::string whole_character(const WizardInput& input, char first) {
  const auto byte = static_cast<unsigned char>(first);
  const int more = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : 0;
  std::string text(1, first);
  for (int i = 0; i < more; ++i) {
    if (const auto next = input.read_byte(&kEscapeSequence)) text += *next;
  }
  return text;
}

}  // namespace

KeyPress read_key(const WizardInput& input) {
  constexpr char kCtrlC = 3;
  const std::optional<char> c = input.read_byte();
  if (!c) throw Interrupted(input.stop_signal() != 0 ? input.stop_signal() : SIGINT);
  if (*c == kCtrlC) throw Interrupted(SIGINT);
  if (*c == kEscapeByte) return {read_escape_sequence(input)};
  const auto byte = static_cast<unsigned char>(*c);
  if (byte < 0x20 || byte == 127) return {control_key(*c)};
  return {Key::kText, whole_character(input, *c)};
}

RawTerminal::RawTerminal(Cursor cursor) : cursor_(cursor) {
  tcgetattr(STDIN_FILENO, &before_);
  termios raw = before_;
  raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO | ISIG));
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  if (cursor_ == Cursor::kHidden) print_to_person("\x1b[?25l");
}

RawTerminal::~RawTerminal() {
  tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  if (cursor_ == Cursor::kHidden) print_to_person("\x1b[?25h");
}

size_t terminal_columns() {
  const size_t columns = columns_of_terminal(STDOUT_FILENO);
  return columns >= kNarrowest ? columns : std::numeric_limits<int>::max();
}

}  // namespace accelerate::cli
