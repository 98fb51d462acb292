// Makes checks on all ranks and brings their verdicts together.
#pragma once

#include <accelerate/communicator.h>
#include <accelerate/process_state.h>
#include <accelerate/strategy_options.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "selftest/check.h"

namespace accelerate::selftest {

enum class Status : int32_t { kPassed, kSkipped, kFailed };

// A check as all ranks together saw it.
struct CheckResult {
  // What a rank has to complain about.
  struct Failure {
    int rank = 0;
    std::string text{};
  };

  std::string family{};
  std::string name{};
  Status status = Status::kPassed;
  std::string detail{};  // what was found, or why it was skipped
  std::vector<Metric> metrics{};
  std::vector<Failure> failures{};  // by rank; those that only lost their peers are left out if any
                                    // other rank says why
  std::chrono::nanoseconds duration{0};
};

// Each check gets an accelerator, and with it connections, that no check has failed on before. A
// rank on which a check throws closes its connections at once, so that no other rank waits for it;
// verdicts travel over `control`, which no check uses.
class Runner {
 public:
  // `control` must outlive it and wait longer than `timeout`, the most that a rank waits for
  // another in a check. All checks train with `strategy`.
  Runner(Communicator& control, std::chrono::milliseconds timeout, StrategyOptions strategy = {})
      : control_(control), timeout_(timeout), strategy_(std::move(strategy)) {}

  // Collective: all ranks, the same check. The same result on all ranks. Throws CommError if a
  // process is gone.
  CheckResult run(const Check& check);

 private:
  // Opens connections, unless there are some that the check may share.
  Accelerator& accelerator_for(const Check& check);

  Communicator& control_;
  std::chrono::milliseconds timeout_;
  StrategyOptions strategy_;
  std::optional<Accelerator> accelerator_;  // of the latest check
  bool is_shared_ = false;                  // and good for another one
};

}  // namespace accelerate::selftest
