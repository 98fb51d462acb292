#include "transformers/pretrained/run_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/unique_fd.h"

extern char** environ;

namespace accelerate::transformers {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

struct Pipe {
  UniqueFd read{}, write{};
};

Pipe open_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("pipe");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::vector<std::string> environment_of(const Program& program) {
  std::vector<std::string> variables;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable = *each;
    const std::string name(variable.substr(0, variable.find('=')));
    if (!program.environment.contains(name)) variables.emplace_back(variable);
  }
  for (const auto& [name, value] : program.environment) {
    if (value) variables.push_back(name + "=" + *value);
  }
  return variables;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  void connect(int descriptor, int as) {
    posix_spawn_file_actions_adddup2(&actions_, descriptor, as);
  }
  void open_empty(int as) {
    posix_spawn_file_actions_addopen(&actions_, as, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (true) {
    const ssize_t got = read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read");
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
}

int wait_for(pid_t process) {
  int status = 0;
  while (waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) fail("waitpid");
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

std::optional<ProgramResult> run_program(const Program& program) {
  std::vector<std::string> arguments = program.arguments;
  std::vector<std::string> variables = environment_of(program);
  Pipe output = open_pipe();
  const UniqueFd errors(memfd_create("standard error", MFD_CLOEXEC));
  if (!errors) fail("memfd_create");
  FileActions actions;
  actions.open_empty(STDIN_FILENO);
  actions.connect(output.write.get(), STDOUT_FILENO);
  actions.connect(errors.get(), STDERR_FILENO);
  pid_t process = 0;
  const int error = posix_spawnp(&process, arguments.front().c_str(), actions.get(), nullptr,
                                 pointers_to(arguments).data(), pointers_to(variables).data());
  if (error == ENOENT) return std::nullopt;
  if (error != 0) throw std::system_error(error, std::generic_category(), arguments.front());
  output.write.reset();
  ProgramResult result{.output = read_all(output.read.get())};
  result.exit_code = wait_for(process);
  if (lseek(errors.get(), 0, SEEK_SET) != 0) fail("lseek");
  result.errors = read_all(errors.get());
  return result;
}

}  // namespace accelerate::transformers
