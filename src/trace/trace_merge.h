// The traces of several ranks.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace accelerate::trace {

// "profile_3.json".
std::string trace_name(int rank);

}  // namespace accelerate::trace
