// The program `accelerate`: its streams, its errors and its exit codes.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>

#include "accelerate/errors.h"
#include "base/terminal_colours.h"
#include "cli/commands/command_line.h"
#include "cli/wizard/wizard_prompter.h"
#include "launch/plan/command_line.h"

namespace {

constexpr int kUsageExitCode = 2;
constexpr int kSignalExitCode = 128;  // and the signal, as a shell says it

// A process may be started with its streams closed; files opened later would then take their
// numbers, and output would go there.
void open_standard_streams() {
  int fd = 0;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

void print_error(const accelerate::Error& error) {
  std::string text = "error: " + error.message() + "\n";
  if (!error.where().empty()) text += "  at   " + error.where() + "\n";
  if (!error.hint().empty()) text += "  try  " + error.hint() + "\n";
  text = accelerate::coloured_messages(accelerate::fitted_messages(text, STDERR_FILENO),
                                       accelerate::shows_colours(STDERR_FILENO));
  std::fwrite(text.data(), 1, text.size(), stderr);
}

// As `accelerate ... | head` leaves it when it has seen enough.
bool reader_is_gone() {
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// A result that cannot be written is work that failed, as on a full disk; that nobody wants the
// rest of it is nothing to speak of.
int with_output_written(int exit_code) {
  std::cout.flush();
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good();
  if (is_written) return exit_code;
  if (reader_is_gone()) return kSignalExitCode + SIGPIPE;
  std::fprintf(stderr, "error: the output cannot be written\n");
  return exit_code == 0 ? 1 : exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  try {
    return with_output_written(accelerate::cli::run_command_line({argv + 1, argv + argc}));
  } catch (const accelerate::cli::Interrupted& interruption) {
    std::fprintf(stderr, "accelerate config: stopped; nothing was written\n");
    return kSignalExitCode + interruption.signal();
  } catch (const accelerate::launch::ProgramError& error) {
    print_error(error);
    return error.exit_code();
  } catch (const accelerate::UsageError& error) {
    print_error(error);
    return kUsageExitCode;
  } catch (const accelerate::ConfigError& error) {
    print_error(error);
    return kUsageExitCode;
  } catch (const accelerate::Error& error) {
    print_error(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  return 1;
}
