#include "accelerate/process_control.h"

#include <ATen/ops/tensor.h>

#include <exception>
#include <string>

#include "accelerate/communicator.h"
#include "accelerate/detail/stamped.h"
#include "accelerate/log.h"
#include "comm/groups/activity.h"

namespace accelerate {

void detail::check_process_index(const ProcessState& state, int index, int count,
                                 const char* operation) {
  if (index >= 0 && index < count) return;
  throw_usage_error(
      state,
      {.what = "there is no process " + std::to_string(index) + " among " + std::to_string(count),
       .where = operation,
       .hint = "the index must be at least 0 and below " + std::to_string(count)});
}

ProcessesFirst::ProcessesFirst(Communicator& communicator, bool goes_first)
    : communicator_(communicator), others_wait_(goes_first) {
  log_level();  // a level that makes no sense is an error here, not in the destructor
  if (goes_first) return;
  const comm::Activity activity(communicator_, "the ranks that go first");
  communicator_.barrier();
}

ProcessesFirst::~ProcessesFirst() {
  try {
    end();
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("the other ranks were not let in: ") + error.what());
  }
}

void ProcessesFirst::end() {
  if (!std::exchange(others_wait_, false)) return;
  const comm::Activity activity(communicator_, "main_process_first: letting the other ranks in");
  communicator_.barrier();
}

ProcessesFirst main_process_first(const ProcessState& state, Communicator& communicator) {
  return {communicator, state.is_main_process()};
}

ProcessesFirst local_main_process_first(const ProcessState& state, Communicator& communicator) {
  return {communicator, state.is_local_main_process()};
}

bool Trigger::check(Communicator& communicator) {
  // Taken before the exchange: what is raised meanwhile counts for the next check.
  at::Tensor raised = at::tensor(raised_.exchange(false) ? 1 : 0, at::kLong);
  communicator.all_reduce(raised, ReduceOp::kMax);
  return raised.item<int64_t>() != 0;
}

}  // namespace accelerate
