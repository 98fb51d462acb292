// Processes as a progress bar sees them.
#pragma once

namespace accelerate::test {

struct Rank {
  bool local_main = true;
  bool is_local_main_process() const { return local_main; }
};

}  // namespace accelerate::test
