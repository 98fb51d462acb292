// The header of a .safetensors file: read from bytes that nobody vouches for, and laid out for
// writing. Knows nothing of what a tensor is in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/safetensors/tensor_dtype.h"

namespace accelerate::files {

// The safetensors library reads no longer headers.
inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name{};
  TensorDtype dtype = TensorDtype::kF32;
  std::vector<uint64_t> shape{};
  // Where its bytes are, counted from the beginning of the data.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries{};  // in the order of their bytes
  std::vector<uint32_t> by_name{};          // positions in `entries`, in the order of the names
  std::map<std::string, std::string> metadata{};
  uint64_t data_begin = 0;  // in the file
};

// Reads and checks the header of the file whose bytes these are, all of them; touches none of the
// data. Memory is bounded by a small multiple of the header's length. What it returns holds: names
// are different, shapes fit their ranges, ranges follow one another without a hole from 0 to the
// end of the file.
//
// Throws CheckpointError that says what is wrong with which tensor, with `where` as its place.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& where);

// The position of the tensor of that name in `entries`, if there is one.
std::optional<size_t> find_entry(const SafetensorsHeader& header, std::string_view name);

// The names under which the metadata keep aliases of tensors, each with the name of the tensor:
// entries whose value is the name of a tensor and whose key is not. The key "format" is none.
std::map<std::string, std::string> aliases_of(const SafetensorsHeader& header);

// The bytes of a tensor of that shape; none if their number is no whole one or beyond 64 bits.
std::optional<uint64_t> tensor_bytes(TensorDtype dtype, std::span<const uint64_t> shape);

// A file that is about to be written.
struct SafetensorsLayout {
  std::string header;                     // all bytes before the data
  std::vector<SafetensorsEntry> entries;  // in the order in which their bytes must follow
  uint64_t file_bytes() const;
};

// Orders the tensors and sets their ranges as the safetensors library does: by type, then by name,
// the header padded with spaces so that the data begin at a multiple of 8. `begin` and `end` of the
// given entries do not matter.
//
// Throws UsageError if two tensors have one name, one is called "__metadata__", a name or a text of
// the metadata is not valid UTF-8, or the header would be too long to be read.
SafetensorsLayout lay_out_safetensors(std::vector<SafetensorsEntry> entries,
                                      const std::map<std::string, std::string>& metadata);

}  // namespace accelerate::files
