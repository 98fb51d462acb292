// What the launcher needs to know about the machine that it runs on.
#pragma once

#include <string>

namespace accelerate::launch {

// Logical processors this process may run on; at least 1.
int available_cores();

// The name of this machine, up to the first dot.
std::string short_host_name();

// GPUs of the NVIDIA driver, also those that CUDA_VISIBLE_DEVICES hides. As cheap as the next.
int present_gpus();

// GPUs a worker would see: those of the NVIDIA driver, cut down by CUDA_VISIBLE_DEVICES. Reads
// names in /dev only: loads no driver, takes microseconds.
int visible_gpus();

// How many devices a value of CUDA_VISIBLE_DEVICES names: CUDA stops reading at the first -1.
int count_visible_devices(const char* cuda_visible_devices);

}  // namespace accelerate::launch
