// The C++ stack frames in libtorch's messages.
#pragma once

namespace accelerate {

// From now on libtorch's errors, and the warnings that c10d makes of them, say what happened and
// where without pages of stack frames, as they do under Python. TORCH_SHOW_CPP_STACKTRACES=1 keeps
// the frames. Of the whole process; any number of calls are one.
void leave_out_stack_frames();

}  // namespace accelerate
