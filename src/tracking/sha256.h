// The checksum by which Weights & Biases names files: SHA-256.
#pragma once

#include <string>
#include <string_view>

namespace accelerate::tracking {

// 64 lower-case hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace accelerate::tracking
