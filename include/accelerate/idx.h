// The IDX files of the MNIST family.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>

namespace accelerate {

// Reads an IDX file, plain or compressed with gzip, into a CPU tensor of the file's shape: uint8,
// int8, int16, int32, float32 or float64, in the byte order of this machine.
//
// Blocks until the file is read. The file may come from anywhere: it is refused with a DataError
// that names it when it is unreadable, not IDX, shorter or longer than its header says, or damaged;
// memory follows the bytes that are really there, not the sizes that the header claims.
at::Tensor read_idx(const std::filesystem::path& path);

}  // namespace accelerate
