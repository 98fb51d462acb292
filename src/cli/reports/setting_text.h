// Settings in the words of help, manual, completion and documents.
#pragma once

#include <string>

#include "config/setting.h"

namespace accelerate::cli {

// The help of a setting with its choices, what counts where nobody gives a value in brackets, and
// what this build makes of it: "Mixed precision: no, fp16 or bf16; fp8 is not part of this build
// [no]".
std::string described(const config::Setting& setting);

// "Processes", "FSDP (not part of this build)"
std::string marked_title(config::Group group);

}  // namespace accelerate::cli
