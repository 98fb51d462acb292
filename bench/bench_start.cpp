// Makes an accelerator and leaves: what the time of a launch is taken from.
#include <accelerate/accelerate.h>

#include <cstdio>

int main() {
  const accelerate::Accelerator accelerator;
  std::printf("rank %d of %d\n", accelerator.process_index(), accelerator.num_processes());
}
