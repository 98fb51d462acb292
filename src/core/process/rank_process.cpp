#include "core/process/rank_process.h"

#include <ATen/Parallel.h>

#include "base/thread_share.h"
#include "core/process/stack_frames.h"

namespace accelerate {

void set_up_rank_process(const ProcessState& state) {
  leave_out_stack_frames();
  if (const auto threads = own_thread_share(state.local_world_size())) {
    at::set_num_threads(*threads);
  }
}

}  // namespace accelerate
