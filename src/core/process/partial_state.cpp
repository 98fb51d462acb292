#include "accelerate/partial_state.h"

#include <cstdio>

#include "accelerate/detail/stamped.h"
#include "base/bar_screen.h"
#include "comm/groups/activity.h"
#include "core/process/gloo_threads.h"
#include "core/process/rank_process.h"

namespace accelerate {

PartialState::PartialState(const PartialStateOptions& options)
    : state_(ProcessState::from_environment({.cpu = options.cpu})),
      communicator_(detail::stamped(state_, [&] {
        set_up_rank_process(state_);
        auto communicator = std::make_shared<Communicator>(state_, options.process_group);
        report_failures_of_gloo(communicator);
        return communicator;
      })) {}

void PartialState::wait_for_everyone() const {
  const comm::Activity activity(*communicator_, "wait_for_everyone");
  communicator_->barrier();
}

void PartialState::print_line(const std::string& text) { write_above_bars(stdout, text + "\n"); }

}  // namespace accelerate
