// Tensors that are spread over several blocks in files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "files/safetensors/tensor_dtype.h"

namespace accelerate::files {

// A block of a tensor in one of the files.
struct TensorPiece {
  size_t file = 0;
  uint64_t offset = 0;              // of its first byte, in the file
  std::vector<uint64_t> shape{};    // of the block
  std::vector<uint64_t> start{};    // where the block begins in the whole
  std::vector<uint64_t> strides{};  // in elements; empty: row-major
};

struct PiecedTensor {
  std::string name{};
  TensorDtype dtype = TensorDtype::kF32;
  std::vector<uint64_t> shape{};
  std::vector<TensorPiece> pieces{};  // together the whole tensor, none overlaps another
  // The pieces are parts of the tensor laid out as one row.
  bool is_flat = false;
  // What the files hold where that is another type than `dtype`, which is kF32 then.
  std::optional<TensorDtype> stored{};

  TensorDtype stored_dtype() const { return stored.value_or(dtype); }
  // Of the whole of which the pieces are parts.
  std::vector<uint64_t> pieces_shape() const;
};

// Whether the pieces make the whole tensor: all inside, none overlaps another, none is missing.
// Says what is wrong ("two pieces of it overlap"), or nothing.
std::string tiling_problem(const PiecedTensor& tensor);

// Calls `run` for the bytes of the tensor in row-major order: runs as long as they can be, each the
// `bytes` from `offset` on of a file. The pieces must make the whole.
void for_each_run(const PiecedTensor& tensor,
                  const std::function<void(size_t file, uint64_t offset, uint64_t bytes)>& run);

}  // namespace accelerate::files
