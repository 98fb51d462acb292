// The program behind `accelerate test`, which is built and installed with this one.
#pragma once

#include <filesystem>
#include <optional>

#include "cli/reports/installation.h"

namespace accelerate::cli {

inline constexpr const char* kSelftestProgram = "accelerate-selftest";

// Beside this program in a build, in the folder for programs of programs in an installation.
// Nothing where it is missing.
std::optional<std::filesystem::path> find_selftest_program();

}  // namespace accelerate::cli
