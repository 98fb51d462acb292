// torch_tpu, which follows torch_xla for torch 2.11 and later.
#pragma once

#include <filesystem>

namespace accelerate::compat {

// This release only looks for it: nothing was verified on a TPU, and its library ends the process
// where there is none, so nothing is loaded. Throws ConfigError that says how far a training would
// get: without the package in the folder `packages`, without a TPU in the machine at `root`, or
// with both.
[[noreturn]] void refuse_torch_tpu(const std::filesystem::path& packages,
                                   const std::filesystem::path& root = "/");

}  // namespace accelerate::compat
