// Whether this machine has a TPU. Nothing is loaded: libraries for TPUs wait for minutes, or end
// the process, where there is none.
#pragma once

#include <filesystem>

namespace accelerate::compat {

// `root` is where the machine's /dev and /sys are: another folder in tests.
bool has_tpu(const std::filesystem::path& root = "/");

}  // namespace accelerate::compat
