// Recorded cases of operations, each on as many ranks as it was recorded on.
#pragma once

#include <accelerate/communicator.h>
#include <accelerate/process_state.h>

#include <functional>
#include <vector>

#include "golden/case_log.h"
#include "support/ranks.h"

namespace accelerate::test {

struct CollectiveCases : Ranks {
  using Check = std::function<void(const nlohmann::json& recorded, const ProcessState& state,
                                   Communicator& ranks, CaseLog& log)>;

  void run_cases(const std::vector<nlohmann::json>& recorded_cases, const Check& check) {
    for (const auto& [world_size, cases] : by_world_size(recorded_cases)) {
      run(world_size, [&, &cases = cases](const Rank&) {
        const ProcessState state = ProcessState::from_environment({.cpu = true});
        Communicator ranks(state, {});
        CaseLog log;
        for (const nlohmann::json& recorded : cases) {
          log.run(recorded, [&] { check(recorded, state, ranks, log); });
        }
        log.report();
      });
    }
  }
};

}  // namespace accelerate::test
