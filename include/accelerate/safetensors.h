// Tensors in .safetensors files: a JSON header, then the bytes of each tensor, row-major and
// little-endian. Files are those of the safetensors library, in both directions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/ordered_dict.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/export.h"

namespace accelerate {

// Tensors by name, in a fixed order: what Module::named_parameters() of libtorch returns.
using NamedTensors = torch::OrderedDict<std::string, at::Tensor>;
using SafetensorsMetadata = std::map<std::string, std::string>;

// What the header of a file says about one tensor.
struct SafetensorsInfo {
  std::string name;
  std::string dtype;           // as in the file: "F32", "BF16", "F8_E4M3"
  std::vector<int64_t> shape;  // of elements
  uint64_t bytes = 0;
  std::optional<at::ScalarType> scalar_type{};  // none where torch has no such type ("F4")
};

// A .safetensors file, mapped into memory: the header is read and checked at once, a tensor is read
// by the kernel where it is touched. Costs address space and the header, never a copy of the data.
//
// A value type: copies share the mapping. All calls are safe from any thread. The file must not
// become shorter while the object or one of its tensors lives; replacing it by a rename is safe.
class ACCELERATE_EXPORT SafetensorsFile {
 public:
  // Throws CheckpointError, which names the file, if it is missing or not a safetensors file: a
  // length that does not fit, a header that is not the JSON it has to be, tensors that leave holes,
  // overlap, or do not cover the file to its last byte.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const;
  // In the order of their bytes in the file.
  const std::vector<std::string>& names() const;
  // Empty where the file has none.
  const SafetensorsMetadata& metadata() const;
  // Further names under which save_safetensors() was given a tensor, each with its name in the
  // file. tensor() and slice() accept them too; names() leaves them out.
  const std::map<std::string, std::string>& aliases() const;
  bool contains(std::string_view name) const;
  // Throws CheckpointError that names some of the existing tensors if there is none of that name.
  // Nothing of the tensor is read.
  const SafetensorsInfo& info(std::string_view name) const;

  // The tensor on the CPU, without a copy: it keeps the mapping alive, and writing to it changes it
  // in this process alone, never the file. If the file's layout violates the type's alignment, it
  // is a copy that owns its memory. Throws CheckpointError if torch has no such
  // type, or if a byte of a tensor of bools is neither 0 nor 1: bools are checked.
  at::Tensor tensor(std::string_view name) const;
  // A copy on `device`; for the CPU as above.
  at::Tensor tensor(std::string_view name, c10::Device device) const;
  // Elements `begin` to `end` (not included) along dimension `dim`, without a copy: reads those
  // pages alone. Throws UsageError for a dimension or range that the tensor does not have.
  at::Tensor slice(std::string_view name, int64_t dim, int64_t begin, int64_t end) const;

  // The bytes of the tensor where they are mapped, aligned or not, with their number. Valid while
  // the object or a copy of it lives.
  std::span<const std::byte> mapped_bytes(std::string_view name) const;

 private:
  struct ACCELERATE_HIDDEN State;
  std::shared_ptr<const State> state_;
};

// Writes the tensors as the safetensors library does: ordered by type, then by name. The file
// appears under `path` at once and complete, or not at all; it is durable when the call returns.
//
// Tensor by tensor: one that is not contiguous or not on the CPU is copied alone. Tensors that are
// the same memory in the same shape are written once, under the first of their names; the others
// are kept in the metadata (other name -> name in the file), where SafetensorsFile and
// load_checkpoint_in_model() find them. Tensors that share only a part of their memory are each
// written in full.
//
// Throws UsageError for a tensor that such a file cannot hold (sparse, quantized, meta, a type
// that the format lacks) before anything is written, CheckpointError if writing fails.
ACCELERATE_EXPORT void save_safetensors(const std::filesystem::path& path,
                                        const NamedTensors& tensors,
                                        const SafetensorsMetadata& metadata = {});

}  // namespace accelerate
