// Threads of autograd for devices that come later.
#pragma once

namespace accelerate::compat {

// libtorch's autograd makes a thread for each number of a device once, in the first backward pass
// of the process; a device with a higher number is an internal error from then on. To be called
// around the opening of a kind of device: begin() has the threads made for what there is, and
// add_missing() makes those for the new devices where there are none. No backward pass may be
// under way.
class AutogradThreads {
 public:
  static void begin();
  static void add_missing(int devices);
};

}  // namespace accelerate::compat
