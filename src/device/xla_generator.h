// Where the random numbers of an XLA device stand.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

namespace accelerate::device {

// XLA keeps one seed for each device, which each random operation and each step moves on: that seed
// is the state, as 8 bytes. Drawing from the generator itself is not possible.
at::Generator make_xla_generator(c10::Device device);

}  // namespace accelerate::device
