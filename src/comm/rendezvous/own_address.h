// Where this machine listens for the other ranks.
#pragma once

#include <string>

#include "accelerate/process_state.h"

namespace accelerate::comm {

// The address of this machine on which the other ranks reach it: the one from which it reaches
// rank 0 itself. Where that is the loopback address though some ranks are on other machines (many
// systems map their own name to 127.0.1.1), the first other address of the machine. Empty if there
// is none. Asks the name service and the system; sends nothing to other ranks.
std::string own_address(const RankEnvironment& ranks);

}  // namespace accelerate::comm
