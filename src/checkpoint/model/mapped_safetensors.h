// A safetensors file that is open: what its header says, and its bytes mapped into memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/safetensors.h"
#include "files/durable/mapped_file.h"
#include "files/safetensors/safetensors_header.h"

namespace accelerate::checkpoint {

// Checked when it is made, as SafetensorsFile promises. Any thread.
struct MappedSafetensors {
  // Throws CheckpointError for a file that cannot be mapped or is damaged.
  explicit MappedSafetensors(const std::filesystem::path& path);

  // Made when the first of them is asked for: whoever wants the names alone does not pay for them.
  const SafetensorsInfo& info_at(size_t position) const;

  std::byte* bytes_at(size_t position) const { return data + entries[position].begin; }

  // Of a name or an alias.
  std::optional<size_t> find(std::string_view name) const;
  // Throws CheckpointError if there is none.
  size_t position_of(std::string_view name) const;

  // A view of the mapping, which it keeps; a copy where the bytes are not aligned. Throws
  // CheckpointError for a type that torch does not have and for bools that are none.
  at::Tensor tensor_at(size_t position) const;

  std::shared_ptr<const MappedFile> mapping;
  SafetensorsMetadata metadata;
  std::byte* data = nullptr;                     // where the offsets begin
  std::vector<files::SafetensorsEntry> entries;  // without their names
  std::vector<std::string> names;
  std::vector<uint32_t> by_name;  // positions in the order of the names
  std::map<std::string, std::string> aliases;
  mutable std::once_flag infos_made;
  mutable std::vector<SafetensorsInfo> infos;
};

}  // namespace accelerate::checkpoint
