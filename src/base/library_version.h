// Which version of the library this is.
#pragma once

namespace accelerate {

// "0.1.0".
const char* library_version();

}  // namespace accelerate
