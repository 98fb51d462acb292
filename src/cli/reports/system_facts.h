// What can be said about the machine without loading any driver or library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace accelerate::cli {

struct PlatformFacts {
  std::string system{};   // "Linux"
  std::string release{};  // "6.1.0-18-amd64"
  std::string machine{};  // "x86_64"
  std::string glibc{};    // "2.36"
};
PlatformFacts platform_facts();

struct ProcessorFacts {
  std::string model{};  // "" if nothing tells it
  int logical_cores = 1;
  int usable_cores = 1;  // by this process
};
ProcessorFacts processor_facts();

uint64_t memory_bytes();  // of the machine

struct GpuFacts {
  std::string model{};  // "" if nothing tells it
  std::string bus{};    // "0000:3b:00.0"; "" if nothing tells it
};
// The GPUs of the machine, also those that CUDA_VISIBLE_DEVICES hides; empty without any.
std::vector<GpuFacts> gpu_facts();
std::string gpu_driver_version();  // "" if there is none

struct PythonFacts {
  std::string path{};     // "": there is no Python
  std::string version{};  // "": it did not answer
  std::string torch{};    // its version; "": it has no torch
};
// Does not import torch; gives up after ten seconds.
PythonFacts python_facts();

// NAME=value of the variables that change how a job runs, sorted.
std::vector<std::string> relevant_variables();

// The memory of each GPU that a worker would see, in bytes, as nvidia-smi tells it; empty where it
// does not.
std::vector<uint64_t> gpu_memories();

// The devices of a value of CUDA_VISIBLE_DEVICES that count, as nvidia-smi names them too: those
// before the first that is none.
std::string first_devices(const std::string& cuda_visible_devices);

}  // namespace accelerate::cli
