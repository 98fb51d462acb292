// Which version of the library this is.
#pragma once

namespace accelerate::compat {

// "0.1.0".
const char* library_version();

}  // namespace accelerate::compat
