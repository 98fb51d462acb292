// The name of this machine. POSIX alone: open to every room.
#pragma once

#include <unistd.h>

#include <array>
#include <string>

namespace accelerate {

// As the system says it, perhaps with its domain; "localhost" where it says none.
inline std::string host_name() {
  std::array<char, 257> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace accelerate
