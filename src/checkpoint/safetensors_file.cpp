#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>

#include "accelerate/errors.h"
#include "accelerate/safetensors.h"
#include "checkpoint/bool_bytes.h"
#include "checkpoint/safetensors_stream.h"
#include "files/json_text.h"
#include "files/mapped_checkpoint.h"
#include "files/safetensors_header.h"

namespace accelerate {
namespace {

using files::in_quotes;

SafetensorsInfo info_of(const std::string& name, const files::SafetensorsEntry& entry) {
  return {.name = name,
          .dtype = std::string(files::dtype_name(entry.dtype)),
          .shape = {entry.shape.begin(), entry.shape.end()},
          .bytes = entry.end - entry.begin,
          .scalar_type = checkpoint::torch_dtype(entry.dtype)};
}

}  // namespace

struct SafetensorsFile::State {
  explicit State(const std::filesystem::path& path)
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

  // Made when the first of them is asked for: whoever wants the names alone does not pay for them.
  const SafetensorsInfo& info_at(size_t position) const {
    std::call_once(infos_made, [&] {
      infos.reserve(entries.size());
      for (size_t i = 0; i < entries.size(); ++i) infos.push_back(info_of(names[i], entries[i]));
    });
    return infos[position];
  }

  std::byte* bytes_at(size_t position) const { return data + entries[position].begin; }

  // Of a name or an alias.
  std::optional<size_t> find(std::string_view name) const {
    const auto precedes = [&](uint32_t position, std::string_view wanted) {
      return names[position] < wanted;
    };
    const auto found = std::lower_bound(by_name.begin(), by_name.end(), name, precedes);
    if (found != by_name.end() && names[*found] == name) return *found;
    if (aliases.empty()) return std::nullopt;
    const auto alias = aliases.find(std::string(name));
    return alias == aliases.end() ? std::nullopt : find(alias->second);
  }

  size_t position_of(std::string_view name) const {
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

  at::Tensor tensor_at(size_t position) const {
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
      checkpoint::check_bools({bytes, info.bytes}, "tensor " + in_quotes(info.name),
                              mapping->path().string());
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

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : state_(std::make_shared<const State>(path)) {}

const std::filesystem::path& SafetensorsFile::path() const { return state_->mapping->path(); }

const std::vector<std::string>& SafetensorsFile::names() const { return state_->names; }

const SafetensorsMetadata& SafetensorsFile::metadata() const { return state_->metadata; }

const std::map<std::string, std::string>& SafetensorsFile::aliases() const {
  return state_->aliases;
}

bool SafetensorsFile::contains(std::string_view name) const {
  return state_->find(name).has_value();
}

const SafetensorsInfo& SafetensorsFile::info(std::string_view name) const {
  return state_->info_at(state_->position_of(name));
}

at::Tensor SafetensorsFile::tensor(std::string_view name) const {
  return state_->tensor_at(state_->position_of(name));
}

at::Tensor SafetensorsFile::tensor(std::string_view name, c10::Device device) const {
  return tensor(name).to(device);
}

std::span<const std::byte> SafetensorsFile::mapped_bytes(std::string_view name) const {
  const size_t position = state_->position_of(name);
  return {state_->bytes_at(position), state_->info_at(position).bytes};
}

at::Tensor SafetensorsFile::slice(std::string_view name, int64_t dim, int64_t begin,
                                  int64_t end) const {
  const size_t position = state_->position_of(name);
  const std::vector<int64_t>& shape = state_->info_at(position).shape;
  const auto dimensions = static_cast<int64_t>(shape.size());
  if (dim < 0 || dim >= dimensions) {
    throw UsageError({.what = "tensor " + in_quotes(name) + " has " + std::to_string(dimensions) +
                              " dimensions, there is no dimension " + std::to_string(dim),
                      .where = path().string()});
  }
  const int64_t size = shape[static_cast<size_t>(dim)];
  if (begin < 0 || begin > end || end > size) {
    throw UsageError({.what = "elements " + std::to_string(begin) + " to " + std::to_string(end) +
                              " of tensor " + in_quotes(name) + " were asked for, dimension " +
                              std::to_string(dim) + " has " + std::to_string(size),
                      .where = path().string()});
  }
  return state_->tensor_at(position).narrow(dim, begin, end - begin);
}

}  // namespace accelerate
