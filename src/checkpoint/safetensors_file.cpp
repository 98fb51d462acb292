#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "accelerate/errors.h"
#include "accelerate/safetensors.h"
#include "checkpoint/safetensors_stream.h"
#include "checkpoint/shared_tensors.h"
#include "files/json_text.h"
#include "files/mapped_checkpoint.h"
#include "files/safetensors_header.h"

namespace accelerate {
namespace {

using files::in_quotes;

// A byte that is neither 0 nor 1 is no value of a C++ bool; to read it as one is undefined.
void check_bools(const std::byte* bytes, const SafetensorsInfo& info, const std::string& where) {
  const std::byte* odd =
      std::find_if(bytes, bytes + info.bytes, [](std::byte byte) { return byte > std::byte{1}; });
  if (odd == bytes + info.bytes) return;
  throw CheckpointError({.what = "tensor " + in_quotes(info.name) + " of bools holds the byte " +
                                 std::to_string(std::to_integer<int>(*odd)) + " at element " +
                                 std::to_string(odd - bytes),
                         .where = where,
                         .hint = "save the file again with bools that are 0 or 1"});
}

SafetensorsInfo info_of(files::SafetensorsEntry& entry) {
  return {.name = std::move(entry.name),
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
    metadata = std::move(header.metadata);
    infos.reserve(header.entries.size());
    begins.reserve(header.entries.size());
    names.reserve(header.entries.size());
    for (files::SafetensorsEntry& entry : header.entries) {
      begins.push_back(mapping->data() + header.data_begin + entry.begin);
      infos.push_back(info_of(entry));
      names.push_back(infos.back().name);
    }
    for (size_t i = 0; i < infos.size(); ++i) positions.emplace(infos[i].name, i);
    aliases = checkpoint::aliases_of(metadata, names);
    for (const auto& [alias, name] : aliases) positions.emplace(alias, positions.at(name));
  }

  size_t position_of(std::string_view name) const {
    const auto found = positions.find(name);
    if (found != positions.end()) return found->second;
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
    const SafetensorsInfo& info = infos[position];
    if (!info.scalar_type) {
      throw CheckpointError({.what = "tensor " + in_quotes(info.name) + " has the type " +
                                     info.dtype + ", which torch does not have",
                             .where = mapping->path().string(),
                             .hint = "convert it in the program that wrote the file"});
    }
    const at::TensorOptions options = at::TensorOptions(*info.scalar_type);
    if (info.bytes == 0) return at::empty(info.shape, options);
    std::byte* bytes = begins[position];
    if (*info.scalar_type == at::kBool) check_bools(bytes, info, mapping->path().string());
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
  std::vector<SafetensorsInfo> infos;
  std::vector<std::byte*> begins;
  std::vector<std::string> names;
  std::map<std::string, std::string> aliases;
  // The texts are those of `infos` and `aliases`.
  std::unordered_map<std::string_view, size_t> positions;
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
  return state_->positions.contains(name);
}

const SafetensorsInfo& SafetensorsFile::info(std::string_view name) const {
  return state_->infos[state_->position_of(name)];
}

at::Tensor SafetensorsFile::tensor(std::string_view name) const {
  return state_->tensor_at(state_->position_of(name));
}

at::Tensor SafetensorsFile::tensor(std::string_view name, c10::Device device) const {
  return tensor(name).to(device);
}

std::span<const std::byte> SafetensorsFile::mapped_bytes(std::string_view name) const {
  const size_t position = state_->position_of(name);
  return {state_->begins[position], state_->infos[position].bytes};
}

at::Tensor SafetensorsFile::slice(std::string_view name, int64_t dim, int64_t begin,
                                  int64_t end) const {
  const size_t position = state_->position_of(name);
  const std::vector<int64_t>& shape = state_->infos[position].shape;
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
