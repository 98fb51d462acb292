#include "launch/launcher_run.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <system_error>
#include <thread>

#include "launch/plan/folder_entries.h"
#include "launch/plan/worker_environment.h"

namespace accelerate::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kMarkName = "LAUNCH_TEST_JOB";

std::vector<char*> pointers_to(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) abort();
    read_end = UniqueFd(ends[0]);
    write_end = UniqueFd(ends[1]);
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

}  // namespace

LauncherRun::LauncherRun(const std::vector<std::string>& arguments, const RunOptions& options) {
  std::vector<std::string> command = options.through;
  if (!options.as_is) command.push_back(ACCELERATE_PROGRAM);
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment = launch::current_environment();
  std::erase_if(environment, [&](const std::string& variable) {
    return options.environment.count(variable.substr(0, variable.find('='))) != 0;
  });
  for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers_to(command);
  const std::vector<char*> envp = pointers_to(environment);
  if (options.in_terminal) {
    start_in_terminal(argv.data(), envp.data());
  } else {
    start_with_pipes(options, argv.data(), envp.data());
  }
}

void LauncherRun::start_with_pipes(const RunOptions& options, char* const* argv,
                                   char* const* envp) {
  Pipe in, out, err;
  if (write(in.write_end.get(), options.input.data(), options.input.size()) < 0) abort();
  pid_ = fork();
  // -1 must never get as far as kill(), where it means every process of the machine.
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ == 0) {
    dup2(in.read_end.get(), 0);
    dup2(out.write_end.get(), 1);
    dup2(err.write_end.get(), 2);
    execvpe(argv[0], argv, envp);
    _exit(99);
  }
  out_ = std::move(out.read_end);
  err_ = std::move(err.read_end);
}

void LauncherRun::start_in_terminal(char* const* argv, char* const* envp) {
  const winsize size{.ws_row = 50, .ws_col = 123, .ws_xpixel = 0, .ws_ypixel = 0};
  int terminal = -1;
  pid_ = forkpty(&terminal, nullptr, nullptr, &size);
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "forkpty");
  if (pid_ == 0) {
    execve(argv[0], argv, envp);
    _exit(99);
  }
  out_ = UniqueFd(terminal);
}

LauncherRun::~LauncherRun() {
  if (waited_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void LauncherRun::signal(int signal) const { ASSERT_EQ(kill(pid_, signal), 0); }

void LauncherRun::type(const std::string& text) const {
  ASSERT_EQ(write(out_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

void LauncherRun::resize_terminal(unsigned short rows, unsigned short columns) const {
  const winsize size{.ws_row = rows, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(ioctl(out_.get(), TIOCSWINSZ, &size), 0);
}

bool LauncherRun::pump() {
  if (!out_ && !err_) return false;
  pollfd fds[] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
  poll(fds, 2, 100);
  char buffer[65536];
  for (auto [fd, ready, text] : {std::tuple{&out_, fds[0].revents, &result_.out},
                                 std::tuple{&err_, fds[1].revents, &result_.err}}) {
    if (ready == 0 || !*fd) continue;
    const ssize_t count = read(fd->get(), buffer, sizeof buffer);
    if (count > 0) {
      text->append(buffer, static_cast<size_t>(count));
    } else {
      fd->reset();
    }
  }
  return out_ || err_;
}

void LauncherRun::wait_for_output(const std::string& text, int times) {
  const auto deadline = Clock::now() + kDeadline;
  while (true) {
    int found = 0;
    for (size_t at = result_.out.find(text); at != std::string::npos;
         at = result_.out.find(text, at + 1)) {
      ++found;
    }
    if (found >= times) return;
    ASSERT_LT(Clock::now(), deadline) << "no '" << text << "' in: " << result_.out << result_.err;
    ASSERT_TRUE(pump()) << "no '" << text << "' in: " << result_.out << result_.err;
  }
}

void LauncherRun::wait_for_error(const std::string& text) {
  const auto deadline = Clock::now() + kDeadline;
  while (result_.err.find(text) == std::string::npos) {
    ASSERT_LT(Clock::now(), deadline) << "no '" << text << "' in: " << result_.out << result_.err;
    ASSERT_TRUE(pump()) << "no '" << text << "' in: " << result_.out << result_.err;
  }
}

RunResult LauncherRun::wait() {
  const auto deadline = Clock::now() + kDeadline;
  bool late = false;
  int status = 0;
  // The launcher decides when it ends: a process that still holds its streams does not count.
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (!late && Clock::now() > deadline) {
      late = true;
      ADD_FAILURE() << "the launcher did not end; so far: " << result_.out << result_.err;
      kill(pid_, SIGKILL);
    }
    if (!pump()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  waited_ = true;
  const auto drain_until = Clock::now() + kDeadline;
  while (pump()) {
    if (Clock::now() > drain_until) {
      ADD_FAILURE() << "somebody holds the streams of the launcher after its end";
      break;
    }
  }
  result_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result_;
}

Launcher::Launcher() : mark_(folder_.path().filename().string()) {}

void Launcher::TearDown() { expect_no_process_left(); }

std::unique_ptr<LauncherRun> Launcher::start(const std::vector<std::string>& arguments,
                                             RunOptions options) {
  options.environment[kMarkName] = mark_;
  options.environment.try_emplace("HF_HOME", folder_.path().string());  // no file of the user
  return std::make_unique<LauncherRun>(arguments, options);
}

RunResult Launcher::run(const std::vector<std::string>& arguments, RunOptions options) {
  return start(arguments, std::move(options))->wait();
}

std::unique_ptr<LauncherRun> Launcher::start_script(int num_processes, const std::string& script,
                                                    std::vector<std::string> flags,
                                                    RunOptions options) {
  std::vector<std::string> arguments = {"launch", "--num_processes", std::to_string(num_processes)};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"sh", folder_.write("worker.sh", script)});
  return start(arguments, std::move(options));
}

RunResult Launcher::run_script(int num_processes, const std::string& script,
                               std::vector<std::string> flags) {
  return start_script(num_processes, script, std::move(flags))->wait();
}

std::vector<pid_t> Launcher::processes() const {
  const std::string wanted = std::string(kMarkName) + "=" + mark_;
  std::vector<pid_t> found;
  for (const auto& process : launch::folder_entries("/proc")) {
    const std::string name = process.filename().string();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return std::isdigit(c); })) continue;
    std::ifstream stream(process / "environ");
    for (std::string variable; std::getline(stream, variable, '\0');) {
      if (variable == wanted) found.push_back(std::stoi(name));
    }
  }
  return found;
}

void Launcher::expect_no_process_left() const {
  // Killed processes need a moment to leave.
  const auto deadline = Clock::now() + kDeadline;
  std::vector<pid_t> left = processes();
  while (!left.empty() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    left = processes();
  }
  EXPECT_EQ(left, std::vector<pid_t>{});
  for (const pid_t pid : left) kill(pid, SIGKILL);
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

}  // namespace accelerate::test
