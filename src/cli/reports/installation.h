// Where the other parts of this installation are, seen from the program. The program holds no
// absolute path of the build, so that a prefix, a package or a Python environment can be moved.
#pragma once

#include <filesystem>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::cli {

// Something that is installed together with this program is missing: no call can put that right.
class InstallationError : public Error {
 public:
  explicit InstallationError(ErrorInfo info) : Error("InstallationError", std::move(info)) {}
};

// The folder of this program.
std::filesystem::path own_folder();

struct Installation {
  std::filesystem::path prefix{};     // holds include/, lib/, libexec/; in a build the build folder
  std::filesystem::path libraries{};  // the folder of libaccelerate.so
  bool is_python_package = false;     // a wheel: torch is the package beside this one
};

// The installation (or the build) that this program belongs to; its folders need not exist.
Installation find_installation();

// What find_package(Accelerate) takes as CMAKE_PREFIX_PATH. Throws InstallationError where the
// CMake files are not installed.
std::filesystem::path cmake_prefix();

}  // namespace accelerate::cli
