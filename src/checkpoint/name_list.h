// Names in messages.
#pragma once

#include <string>
#include <vector>

namespace accelerate::checkpoint {

// "a, b, c": all of them.
std::string name_list(const std::vector<std::string>& names);

}  // namespace accelerate::checkpoint
