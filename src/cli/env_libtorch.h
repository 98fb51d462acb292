// What can be said about libtorch without loading it.
#pragma once

#include <string>
#include <vector>

namespace accelerate::cli {

// A library through which ranks speak to each other.
struct BackendFacts {
  std::string name{};     // "gloo", "nccl"
  std::string version{};  // "" if nothing tells it
  std::string path{};     // "": inside libtorch
};

struct LibtorchFacts {
  std::string folder{};  // of libtorch_cpu.so; "" if it is not found
  std::string version{};
  bool has_cuda = false;  // libtorch_cuda.so is beside it
  std::vector<BackendFacts> backends{};
};

// The libtorch that a program of the library loads, as the dynamic loader finds it for the
// self-test now, with LD_LIBRARY_PATH and the run path; where there is no self-test, that of the
// build.
LibtorchFacts find_libtorch();

}  // namespace accelerate::cli
