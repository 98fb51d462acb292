#include "selftest/arguments.h"

#include <accelerate/errors.h>

#include <charconv>

namespace accelerate::selftest {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& argument) {
  throw ConfigError({.what = what, .where = argument, .hint = "see accelerate-selftest --help"});
}

std::chrono::seconds seconds_of(const std::string& text) {
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 1) {
    refuse("'" + text + "' is not a number of seconds", "--timeout");
  }
  return std::chrono::seconds(seconds);
}

}  // namespace

Arguments parse_arguments(const std::vector<std::string>& arguments) {
  Arguments result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    // --name value, or --name=value.
    const size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    const auto value = [&] {
      if (equals != std::string::npos) return arguments[i].substr(equals + 1);
      if (i + 1 == arguments.size()) refuse("it needs a value", name);
      return arguments[++i];
    };
    const bool is_flag = equals == std::string::npos;
    if (is_flag && (name == "--help" || name == "-h")) {
      result.help = true;
    } else if (is_flag && name == "--json") {
      result.json = true;
    } else if (name == "--timeout") {
      result.timeout = seconds_of(value());
    } else if (name == "--folder") {
      result.folder = value();
    } else {
      refuse("accelerate-selftest does not know this argument", arguments[i]);
    }
  }
  return result;
}

std::string help_text() {
  return R"(accelerate-selftest: checks that the processes of a job can train together.

  accelerate test                                     on the set-up of 'accelerate config'
  accelerate launch --num_processes 2 accelerate-selftest
  mpirun -n 2 accelerate-selftest                     also srun, torchrun, or alone

Checks the processes, every collective operation, how data is shared out, that several
processes learn what one would, accumulation, mixed precision, save and resume; then measures
the bandwidth of all-reduce. The main process prints a list with ticks.

  --json          print one JSON object instead
  --timeout S     how many seconds a process waits for another at most (120)
  --folder PATH   an existing folder that all processes see, for the check of checkpoints
                  (the system's folder for temporary files; several machines must name one)
  -h, --help      print this

Exit status: 0 all checks passed or do not apply, 1 a check failed or the processes did not
meet, 2 wrong arguments. No colours where NO_COLOR is set or the output is not a terminal.
)";
}

}  // namespace accelerate::selftest
