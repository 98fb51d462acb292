// Libraries of a device whose results depend on how they were opened.
#pragma once

#include <c10/core/Device.h>

namespace accelerate::device {

// Called before `device` is used: sets variables that its libraries read when they are opened and
// that are not set yet. They stay set. Throws ConfigError if one has a value that makes results
// differ from run to run, and UsageError if the device is in use already and a variable was not
// set. Does nothing for the CPU.
void use_deterministic_libraries(c10::Device device);

}  // namespace accelerate::device
