#include "monitor/monitor_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "accelerate/errors.h"
#include "accelerate/log.h"
#include "base/terminal_colours.h"
#include "base/terminal_width.h"
#include "monitor/devices/machine_recorder.h"
#include "monitor/server/page_server.h"
#include "monitor/terminal/top_screen.h"

namespace accelerate::monitor {
namespace {

using std::chrono::milliseconds;

volatile sig_atomic_t g_stop_signal = 0;

void note_stop_signal(int signal) { g_stop_signal = signal; }

void listen_to(std::initializer_list<int> signals) {
  struct sigaction action {};
  action.sa_handler = note_stop_signal;  // without SA_RESTART: waiting ends
  for (const int signal : signals) sigaction(signal, &action, nullptr);
}

// --- The terminal ------------------------------------------------------------------------------

// Keys come one by one and are not shown; the screen is another than that of the shell. Put back
// when it goes.
class ScreenMode {
 public:
  ScreenMode() {
    has_keys_ = tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    write_all("\x1b[?1049h\x1b[?25l");
  }
  ~ScreenMode() {
    write_all("\x1b[?25h\x1b[?1049l");
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  ScreenMode(const ScreenMode&) = delete;
  ScreenMode& operator=(const ScreenMode&) = delete;

  // The next key within `timeout`; 0: none.
  char key(milliseconds timeout) const {
    pollfd input{has_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
    if (poll(&input, 1, static_cast<int>(timeout.count())) != 1) return 0;
    char key = 0;
    return read(STDIN_FILENO, &key, 1) == 1 ? key : 'q';
  }
  static void write_all(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

 private:
  termios before_{};
  bool has_keys_ = false;
};

ScreenSize screen_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

// Each line is wiped behind its text, and what is below the last too: nothing flickers.
std::string redrawn(const std::string& screen) {
  std::string text = "\x1b[H";
  for (const char c : screen) {
    if (c == '\n') text += "\x1b[K";
    text += c;
  }
  return text + "\x1b[J";
}

int exit_code_of(const RunView& view) { return view.state() == RunState::kFailed ? 1 : 0; }

}  // namespace

int serve_page(const std::filesystem::path& path, OpenPage page) {
  listen_to({SIGINT, SIGTERM, SIGHUP});
  signal(SIGPIPE, SIG_IGN);
  PageServer server(path, std::move(page.socket), {.token = page.token});
  while (g_stop_signal == 0) server.serve(PageServer::kInterval);
  server.say_goodbye();
  return 0;
}

int run_recorder(const RecorderTask& task) {
  listen_to({SIGTERM});
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP}) ::signal(signal, SIG_IGN);
  std::optional<MachineRecorder> recorder;
  try {
    recorder.emplace(task.folder, task.machine);
  } catch (const Error& error) {
    // The page may still show what others record; the disk may have room again for them.
    log(LogLevel::kWarning, error.message());
  }
  RunFolder run(task.folder);
  std::unique_ptr<PageServer> page;
  if (task.page_socket >= 0) {
    fcntl(task.page_socket, F_SETFD, FD_CLOEXEC);
    page = std::make_unique<PageServer>(task.folder, UniqueFd(task.page_socket),
                                        PageAccess{.token = task.token});
  }
  const pid_t launcher = getppid();
  while (g_stop_signal == 0 && getppid() == launcher) {
    if (page) {
      page->serve(PageServer::kInterval);
    } else {
      poll(nullptr, 0, static_cast<int>(PageServer::kInterval.count()));
    }
    run.poll();
    if (recorder) recorder->tick(run.view());
  }
  if (recorder) recorder->finish();
  if (page) page->say_goodbye();
  return 0;
}

int show_top(const std::filesystem::path& path, bool once) {
  RunFolder run(path);
  run.poll(std::chrono::seconds(10));
  const bool is_screen = !once && isatty(STDOUT_FILENO) != 0;
  const bool has_colours = shows_colours(STDOUT_FILENO);
  if (!is_screen) {
    const size_t columns = std::max<size_t>(columns_of_terminal(STDOUT_FILENO), 100);
    ScreenMode::write_all(top_screen(run, {.columns = columns, .rows = 0}, has_colours));
    return exit_code_of(run.view());
  }
  listen_to({SIGINT, SIGTERM, SIGHUP, SIGWINCH});
  const ScreenMode screen;
  while (true) {
    run.poll();
    ScreenMode::write_all(redrawn(top_screen(run, screen_size(), has_colours)));
    const char key = screen.key(std::chrono::seconds(1));
    if (key == 'q' || key == 'Q' || key == '\x1b') break;
    if (g_stop_signal != 0 && g_stop_signal != SIGWINCH) break;
    g_stop_signal = 0;
  }
  return exit_code_of(run.view());
}

}  // namespace accelerate::monitor
