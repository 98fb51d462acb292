#include "checkpoint/model/mapped_safetensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "checkpoint/archive/bool_bytes.h"
#include "checkpoint/model/safetensors_stream.h"
#include "files/safetensors/mapped_checkpoint.h"

namespace accelerate::checkpoint {
namespace {

SafetensorsInfo tensor_info(const std::string& name, const files::SafetensorsEntry& entry) {
  return {.name = name,
          .dtype = std::string(files::dtype_name(entry.dtype)),
          .shape = {entry.shape.begin(), entry.shape.end()},
          .bytes = entry.end - entry.begin,
          .scalar_type = torch_dtype(entry.dtype)};
}

}  // namespace

MappedSafetensors::MappedSafetensors(const std::filesystem::path& path)
    : mapping(files::map_checkpoint_file(path, "the safetensors file")) {
  files::SafetensorsHeader header =
      files::parse_safetensors_header(mapping->bytes(), path.string());
  aliases = files::aliases_of(header);
  metadata = std::move(header.metadata);
  data = mapping->data() + header.data_begin;
  by_name = std::move(header.by_name);
  entries = std::move(header.entries);
  names.reserve(entries.size());
  for (files::SafetensorsEntry& entry : entries) names.push_back(std::move(entry.name));
}

const SafetensorsInfo& MappedSafetensors::info_at(size_t position) const {
  std::call_once(infos_made, [&] {
    infos.reserve(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) infos.push_back(tensor_info(names[i], entries[i]));
  });
  return infos[position];
}

std::optional<size_t> MappedSafetensors::find(std::string_view name) const {
  const auto precedes = [&](uint32_t position, std::string_view wanted) {
    return names[position] < wanted;
  };
  const auto found = std::lower_bound(by_name.begin(), by_name.end(), name, precedes);
  if (found != by_name.end() && names[*found] == name) return *found;
  if (aliases.empty()) return std::nullopt;
  const auto alias = aliases.find(std::string(name));
  return alias == aliases.end() ? std::nullopt : find(alias->second);
}

size_t MappedSafetensors::position_of(std::string_view name) const {
  if (const auto found = find(name)) return *found;
  std::string some;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 3); ++i) {
    some += (i == 0 ? ": " : ", ") + in_quotes(names[i]);
  }
  throw CheckpointError({.what = "there is no tensor " + in_quotes(name) + " in the file",
                         .where = mapping->path().string(),
                         .hint = "it has " + std::to_string(names.size()) + " tensors" + some +
                                 (names.size() > 3 ? ", ..." : "")});
}

at::Tensor MappedSafetensors::tensor_at(size_t position) const {
  const SafetensorsInfo& info = info_at(position);
  if (!info.scalar_type) {
    throw CheckpointError({.what = "tensor " + in_quotes(info.name) + " has the type " +
                                   info.dtype + ", which torch does not have",
                           .where = mapping->path().string(),
                           .hint = "convert it in the program that wrote the file"});
  }
  const at::TensorOptions options = at::TensorOptions(*info.scalar_type);
  if (info.bytes == 0) return at::empty(info.shape, options);
  std::byte* bytes = bytes_at(position);
  if (*info.scalar_type == at::kBool) {
    check_bools({bytes, info.bytes}, "tensor " + in_quotes(info.name), mapping->path().string());
  }
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): asked for its alignment alone
  if (reinterpret_cast<uintptr_t>(bytes) % c10::elementSize(*info.scalar_type) != 0) {
    at::Tensor copy = at::empty(info.shape, options);
    std::memcpy(copy.data_ptr(), bytes, info.bytes);
    return copy;
  }
  return at::from_blob(
      bytes, info.shape, [keep = mapping](void* /*data*/) {}, options);
}

}  // namespace accelerate::checkpoint
