#include <ATen/ATen.h>

#include "accelerate/errors.h"
#include "accelerate/safetensors.h"
#include "base/message_text.h"
#include "checkpoint/model/mapped_safetensors.h"

namespace accelerate {

struct SafetensorsFile::State : checkpoint::MappedSafetensors {
  using MappedSafetensors::MappedSafetensors;
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
