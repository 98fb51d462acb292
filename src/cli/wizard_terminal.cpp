#include "cli/wizard_terminal.h"

#include <poll.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "cli/wizard_prompter.h"

namespace accelerate::cli {
namespace {

constexpr char kCtrlC = 3;
constexpr char kCtrlD = 4;
constexpr char kEscape = 27;
constexpr int kEscapeSequenceMs = 50;  // the bytes of one key come together

volatile sig_atomic_t g_stop_requested = 0;

extern "C" void request_stop(int) { g_stop_requested = 1; }

void print(const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(STDOUT_FILENO, text.data() + done, text.size() - done);
    if (count <= 0) return;
    done += static_cast<size_t>(count);
  }
}

// Keys arrive one by one and unseen while this lives; the cursor is hidden.
class RawTerminal {
 public:
  RawTerminal() {
    g_stop_requested = 0;
    struct sigaction action {};
    action.sa_handler = request_stop;  // no SA_RESTART: a read that waits has to return
    sigaction(SIGTERM, &action, &before_term_);
    sigaction(SIGHUP, &action, &before_hup_);
    tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO | ISIG));
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    print("\x1b[?25l");
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  ~RawTerminal() {
    print("\x1b[?25h");
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    sigaction(SIGTERM, &before_term_, nullptr);
    sigaction(SIGHUP, &before_hup_, nullptr);
  }

 private:
  termios before_{};
  struct sigaction before_term_ {};
  struct sigaction before_hup_ {};
};

enum class Key { kUp, kDown, kFirst, kLast, kEnter, kDigit, kOther };

struct KeyPress {
  Key key = Key::kOther;
  size_t digit = 0;
};

std::optional<char> read_byte() {
  char c = 0;
  while (true) {
    const ssize_t count = read(STDIN_FILENO, &c, 1);
    if (count == 1) return c;
    if (count == 0 || errno != EINTR || g_stop_requested != 0) return std::nullopt;
  }
}

// What follows the byte that every arrow key begins with.
Key read_escape_sequence() {
  const auto next = []() -> char {
    pollfd ready{STDIN_FILENO, POLLIN, 0};
    if (poll(&ready, 1, kEscapeSequenceMs) <= 0) return 0;
    return read_byte().value_or(0);
  };
  const char introducer = next();
  if (introducer != '[' && introducer != 'O') return Key::kOther;
  switch (next()) {
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

KeyPress read_key() {
  const std::optional<char> c = read_byte();
  if (!c || *c == kCtrlC || *c == kCtrlD) throw Interrupted();
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
      return {read_escape_sequence()};
    default:
      return {Key::kOther};
  }
}

std::string menu(const std::vector<std::string>& options, size_t chosen) {
  std::string text;
  for (size_t i = 0; i < options.size(); ++i) {
    const bool is_chosen = i == chosen;
    text += "\r\x1b[K" + std::string(is_chosen ? "\x1b[1m> " : "  ") + options[i] +
            (is_chosen ? "\x1b[0m" : "") + "\r\n";
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

size_t choose_in_terminal(const std::string& question, const std::vector<std::string>& options,
                          size_t preset) {
  const RawTerminal raw;
  size_t chosen = preset;
  print(question + "\r\n" + menu(options, chosen));
  while (true) {
    const KeyPress press = read_key();
    if (press.key == Key::kEnter) break;
    chosen = moved(chosen, press, options.size());
    print("\x1b[" + std::to_string(options.size()) + "A" + menu(options, chosen));
  }
  print(erased(options.size()) + "  " + options[chosen] + "\r\n");
  return chosen;
}

}  // namespace accelerate::cli
