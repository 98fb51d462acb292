// How a test program ends: an exit code that tells tests that passed from tests that did not run.
#pragma once

namespace accelerate::test {

// Of a program in which every test was skipped. CTest shows it as skipped.
inline constexpr int kAllSkippedExitCode = 77;

// Runs the tests that the command line names. Returns 0 if they passed, kAllSkippedExitCode if all
// of them were skipped, and 1 if one failed or if there was none to run.
int run_all_tests();

}  // namespace accelerate::test
