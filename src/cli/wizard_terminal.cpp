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
constexpr timespec kEscapeSequence{0, 50'000'000};  // the bytes of one key come together

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

// Keys arrive one by one and unseen while this lives; the cursor is hidden. Signals to stop are let
// in only while read_byte() waits, so that none is missed.
class RawTerminal {
 public:
  RawTerminal() {
    g_stop_requested = 0;
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGHUP);
    sigprocmask(SIG_BLOCK, &stops, &before_mask_);
    struct sigaction action {};
    action.sa_handler = request_stop;
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
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    print("\x1b[?25h");
    sigaction(SIGTERM, &before_term_, nullptr);
    sigaction(SIGHUP, &before_hup_, nullptr);
    sigprocmask(SIG_SETMASK, &before_mask_, nullptr);
  }

  // Nothing at the end of the input, and when the program is told to stop.
  std::optional<char> read_byte(const timespec* timeout = nullptr) const {
    pollfd ready{STDIN_FILENO, POLLIN, 0};
    int count = 0;
    do {
      count = ppoll(&ready, 1, timeout, &before_mask_);
    } while (count < 0 && errno == EINTR && g_stop_requested == 0);
    char c = 0;
    if (count <= 0 || read(STDIN_FILENO, &c, 1) != 1) return std::nullopt;
    return c;
  }

 private:
  termios before_{};
  sigset_t before_mask_{};
  struct sigaction before_term_ {};
  struct sigaction before_hup_ {};
};

enum class Key { kUp, kDown, kFirst, kLast, kEnter, kDigit, kOther };

struct KeyPress {
  Key key = Key::kOther;
  size_t digit = 0;
};

// What follows the byte that every arrow key begins with.
Key read_escape_sequence(const RawTerminal& terminal) {
  const auto next = [&] { return terminal.read_byte(&kEscapeSequence).value_or(0); };
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

KeyPress read_key(const RawTerminal& terminal) {
  const std::optional<char> c = terminal.read_byte();
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
      return {read_escape_sequence(terminal)};
    default:
      return {Key::kOther};
  }
}

std::string menu(const std::vector<std::string>& options, size_t chosen) {
  std::string text;
  for (size_t i = 0; i < options.size(); ++i) {
    const bool is_chosen = i == chosen;
    text += "\r\x1b[K" + std::string(is_chosen ? "\x1b[1m> " : "  ") + options[i] +
            (is_chosen ? "\x1b[0m" : "") + "\n";
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
  const RawTerminal terminal;
  size_t chosen = preset;
  print(question + "\n" + menu(options, chosen));
  while (true) {
    const KeyPress press = read_key(terminal);
    if (press.key == Key::kEnter) break;
    chosen = moved(chosen, press, options.size());
    print("\x1b[" + std::to_string(options.size()) + "A" + menu(options, chosen));
  }
  print(erased(options.size()) + "  " + options[chosen] + "\n");
  return chosen;
}

}  // namespace accelerate::cli
