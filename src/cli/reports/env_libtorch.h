// What can be said about libtorch without loading it.
#pragma once

#include <string>
#include <vector>

namespace accelerate::cli {

// A library through which ranks speak to each other, or through which XLA devices are used.
struct BackendFacts {
  std::string name{};     // "gloo", "nccl", "xla"
  std::string version{};  // "" if nothing tells it
  std::string path{};     // "": inside libtorch
};

// Why programs of the library do not start, in one line, and what to do about it.
struct LibtorchProblem {
  std::string what{};  // "": there is none
  std::string hint{};
};

struct LibtorchFacts {
  std::string folder{};  // of libtorch_cpu.so; "" if it is not found
  std::string version{};
  bool has_cuda = false;  // libtorch_cuda.so is beside it
  std::vector<BackendFacts> backends{};
  LibtorchProblem problem{};
  bool is_asked_of_loader = false;  // false: this is where it should be
};

// The libtorch that a program of the library loads, as the dynamic loader finds it for the
// self-test now, with LD_LIBRARY_PATH and the run path; where there is no self-test, the one that
// the installation was told of: lib/accelerate/libtorch is a link to it, or in a wheel it is the
// package beside ours.
LibtorchFacts find_libtorch();

}  // namespace accelerate::cli
