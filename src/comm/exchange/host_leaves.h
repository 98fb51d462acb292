// The leaves of a nested value that are not tensors, as one message.
#pragma once

#include <string>
#include <vector>

#include "accelerate/detail/operands.h"

namespace accelerate::comm {

std::string message_of(const std::vector<detail::HostLeaf>& leaves);

// Gives the leaves what the messages of some ranks hold for them.
void assign_leaves(std::vector<detail::HostLeaf>& leaves, const std::vector<std::string>& messages);

}  // namespace accelerate::comm
