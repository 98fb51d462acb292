// Standard C++ alone: shared by the launcher and by what starts workers inside a program.
#pragma once

#include <chrono>

namespace accelerate {

// How long a worker may take to end after others have failed because they lost it: on a busy
// machine its peers may be faster, and a stopped worker would not say what went wrong.
inline constexpr std::chrono::seconds kTimeToNameTheCause{5};

}  // namespace accelerate
