// Where a rank leaves the message of the error that ends it, so that the launcher can print it once
// for all ranks. Standard C++ alone: shared by the library and the launcher.
#pragma once

namespace accelerate {

// Names the number of a descriptor, the writing end of a pipe. A message is at most PIPE_BUF bytes.
inline constexpr const char* kErrorChannelVariable = "ACCELERATE_ERROR_FD";

}  // namespace accelerate
