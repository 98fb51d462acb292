// The program behind `accelerate test`.
#include <accelerate/errors.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "selftest/arguments.h"
#include "selftest/configured_strategy.h"
#include "selftest/report.h"
#include "selftest/runner.h"

namespace accelerate::selftest {
namespace {

constexpr int kPassed = 0;
constexpr int kFailed = 1;
constexpr int kWrongArguments = 2;

int run_all(const Arguments& arguments) {
  const StrategyOptions strategy = take_configured_strategy();
  const ProcessState state = ProcessState::from_environment();
  // A rank that has failed waits for the verdicts of those that still wait for it in the check.
  Communicator control(state,
                       {.timeout = 2 * arguments.timeout, .rendezvous_timeout = arguments.timeout});
  Runner runner(control, arguments.timeout, strategy);
  TickList ticks(state.world_size(), wants_colours(STDOUT_FILENO), columns_of(STDOUT_FILENO));
  std::vector<CheckResult> results;
  for (const Check& check : all_checks(arguments.folder)) {
    results.push_back(runner.run(check));
    if (state.is_main_process() && !arguments.json) {
      std::cout << ticks.lines(results.back()) << std::flush;
    }
  }
  if (state.is_main_process()) {
    if (!arguments.json) std::cout << '\n';
    std::cout << (arguments.json ? to_json(state, results) : ticks.summary(results)) << '\n'
              << std::flush;
  }
  // A launcher stops the others as soon as one has left with a status of failure: not before the
  // main process has said why.
  control.barrier();
  return all_passed(results) ? kPassed : kFailed;
}

int run(const std::vector<std::string>& words) {
  try {
    const Arguments arguments = parse_arguments(words);
    if (arguments.help) {
      std::cout << help_text();
      return kPassed;
    }
    try {
      return run_all(arguments);
    } catch (const std::exception& error) {
      std::cerr << error.what() << '\n';
      return kFailed;
    }
  } catch (const ConfigError& error) {
    std::cerr << error.what() << '\n';
    return kWrongArguments;
  }
}

}  // namespace
}  // namespace accelerate::selftest

int main(int argc, char** argv) {
  return accelerate::selftest::run(std::vector<std::string>(argv + 1, argv + argc));
}
