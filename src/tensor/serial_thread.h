// Keeps libtorch's operations inside the thread that calls them.
#pragma once

namespace accelerate {

// From here on operations that this thread calls use no other threads. Other threads, and those
// started later, keep theirs: at::set_num_threads(1) would change the default of the process.
void make_thread_serial();

}  // namespace accelerate
