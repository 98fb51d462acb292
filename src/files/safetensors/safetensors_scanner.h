// The header of a .safetensors file, read fast where it is written as writers write it.
#pragma once

#include <string_view>

#include "files/safetensors/safetensors_header.h"

namespace accelerate::files {

// Takes a header that is valid and plain: texts in ASCII without escapes, whole numbers below
// 10^19, no fields but those of the format. Fills entries and metadata as SafetensorsEvents would,
// several times faster, and returns true.
//
// Anything else, valid or not, returns false with `header` unspecified: SafetensorsEvents decides,
// so there is one place that refuses and one that says why.
[[nodiscard]] bool scan_safetensors_header(std::string_view text, SafetensorsHeader& header);

}  // namespace accelerate::files
