// What can be said about libtorch without loading it.
#pragma once

#include <string>
#include <vector>

namespace accelerate::cli {

struct LibtorchFacts {
  std::string folder{};  // of libtorch_cpu.so; "" if it is not where it was at the build
  std::string version{};
  bool has_cuda = false;                // libtorch_cuda.so is beside it
  std::vector<std::string> backends{};  // "gloo", "nccl 2.28.9 at /..."
};

// Looks where the library finds libtorch. Reads names of files alone.
LibtorchFacts find_libtorch();

}  // namespace accelerate::cli
