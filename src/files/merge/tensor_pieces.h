// Tensors that are spread over several blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "files/merge/merge_source.h"

namespace accelerate::files {

// Whether the pieces make the whole tensor: all inside, none overlaps another, none is missing.
// Says what is wrong ("two files hold element [3, 0]"), or nothing.
std::string tiling_problem(const MergeTensor& tensor);

// Calls `run` for the bytes of the tensor in row-major order: runs as long as they can be, each the
// `bytes` from `offset` on of a file. The pieces must make the whole.
void for_each_run(const MergeTensor& tensor,
                  const std::function<void(size_t file, uint64_t offset, uint64_t bytes)>& run);

}  // namespace accelerate::files
