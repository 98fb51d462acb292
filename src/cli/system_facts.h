// What can be said about the machine without loading any driver or library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace accelerate::cli {

std::string describe_platform();   // "Linux 6.1.0-18-amd64 x86_64, glibc 2.36"
std::string describe_processor();  // "AMD EPYC 7R13, 8 of 96 logical cores"
std::string describe_memory();     // "30.6 GiB"

// One text a GPU of the machine, also of those that CUDA_VISIBLE_DEVICES hides; empty without any.
std::vector<std::string> describe_gpus();
std::string describe_gpu_driver();  // "" if there is none

// "3.11.2 at /usr/bin/python3, torch 2.11.0"; "none" where there is no Python. Does not import
// torch; gives up after ten seconds.
std::string describe_python();

// NAME=value of the variables that change how a job runs, sorted.
std::vector<std::string> relevant_variables();

// The memory of each GPU that a worker would see, in bytes, as nvidia-smi tells it; empty where it
// does not.
std::vector<uint64_t> gpu_memories();

// The devices of a value of CUDA_VISIBLE_DEVICES that count, as nvidia-smi names them too: those
// before the first that is none.
std::string first_devices(const std::string& cuda_visible_devices);

}  // namespace accelerate::cli
