// Bools in files.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace accelerate::checkpoint {

// A byte that is neither 0 nor 1 is not a value of a C++ bool; to read it as one is undefined.
// Throws CheckpointError if there is one; `subject` is what is said to hold it: "tensor \"mask\"".
void check_bools(std::span<const std::byte> bytes, const std::string& subject,
                 const std::string& where);

}  // namespace accelerate::checkpoint
