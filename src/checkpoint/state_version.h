// Which version of the library writes a checkpoint.
#pragma once

#include <string_view>

namespace accelerate::checkpoint {

// "0.1.0".
std::string_view library_version();

}  // namespace accelerate::checkpoint
