// Where a tensor of an archive of torch.save lies in the file.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "files/pickle/pickle_archive.h"
#include "files/pieces/tensor_pieces.h"

namespace accelerate::files {

// None for a type that safetensors do not have: complex128, say.
std::optional<TensorDtype> dtype_of_torch(std::string_view name);

struct ArchivedTensor {
  TensorDtype dtype = TensorDtype::kF32;
  uint64_t elements = 0;
  TensorPiece piece{};  // the whole tensor; its file is 0
};

// `file` is what the archive is a part of. `where` and `subject` ("tensor \"a\"") are for messages.
// Throws CheckpointError for a type that safetensors do not have, a tensor that is conjugated or
// negated lazily, and one that has more elements than its storage.
ArchivedTensor locate_tensor(const PickleArchive& archive, const PickleTensor& tensor,
                             std::span<const std::byte> file, const std::string& subject,
                             const std::string& where);

// The memory of the tensor.
const PickleStorage& storage_of(const PickleArchive& archive, const PickleTensor& tensor);

}  // namespace accelerate::files
