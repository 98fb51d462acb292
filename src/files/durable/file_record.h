// What was written: a file and its parts, with a checksum each. A writer makes such a record, a
// manifest keeps it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::files {

// Where a piece of a tensor belongs in the whole, one number a dimension.
struct ShardRecord {
  std::vector<int64_t> global_shape{};
  std::vector<int64_t> start{};

  bool operator==(const ShardRecord&) const = default;
};

// A run of bytes of a file with a checksum of its own: one tensor, as a rule.
struct PartRecord {
  std::string name{};
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
  uint64_t checksum = 0;
  // Of a tensor. The file writer does not know them: whoever wrote the tensor fills them in.
  std::string dtype{};                 // as safetensors spells it: "F32"; empty: not a tensor
  std::vector<int64_t> shape{};        // of what this file holds
  std::optional<ShardRecord> shard{};  // unset: the file holds the whole tensor

  bool operator==(const PartRecord&) const = default;
};

struct FileRecord {
  std::string name{};  // in the directory of the checkpoint, see is_plain_name()
  uint64_t bytes = 0;
  uint64_t checksum = 0;
  std::vector<PartRecord> parts{};  // in the order of their offsets, none overlaps another

  bool operator==(const FileRecord&) const = default;
};

// Whether a file of a checkpoint may have that name: 1 to 255 bytes of printable ASCII, no slash,
// no leading dot. So it can neither leave the directory nor hide in it.
bool is_plain_name(std::string_view name);

}  // namespace accelerate::files
