#include "checkpoint/model/pieced_source.h"

#include <ATen/ATen.h>

#include <cstring>
#include <stdexcept>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "checkpoint/archive/bool_bytes.h"
#include "checkpoint/model/safetensors_stream.h"
#include "files/dcp/dcp_folder.h"
#include "files/safetensors/safetensors_header.h"

namespace accelerate::checkpoint {
namespace {

// Memory that is filled from its beginning to its end.
class MemoryFill final : public files::ByteSink {
 public:
  explicit MemoryFill(std::span<std::byte> memory) : left_(memory) {}

  void write(std::span<const std::byte> bytes) override {
    if (bytes.size() > left_.size()) throw std::logic_error("more bytes than the tensor has");
    std::memcpy(left_.data(), bytes.data(), bytes.size());
    left_ = left_.subspan(bytes.size());
  }

 private:
  std::span<std::byte> left_;
};

}  // namespace

PiecedSource::PiecedSource(const std::filesystem::path& folder, files::Links links)
    : source_(folder, {.links = links}) {
  for (const files::PiecedTensor& tensor : source_.tensors()) {
    const auto dtype = torch_dtype(tensor.dtype);
    if (!dtype) {
      throw CheckpointError({.what = "tensor " + in_quotes(tensor.name) + " has the type " +
                                     std::string(files::dtype_name(tensor.dtype)) +
                                     ", which torch does not have",
                             .where = folder.string(),
                             .hint = "convert it in the program that wrote the folder"});
    }
    positions_.emplace(tensor.name, tensors_.size());
    tensors_.push_back({.name = tensor.name,
                        .shape = {tensor.shape.begin(), tensor.shape.end()},
                        .dtype = *dtype});
  }
}

const files::PiecedTensor& PiecedSource::pieced(const std::string& name) const {
  return source_.tensors()[positions_.at(name)];
}

at::Tensor PiecedSource::tensor(const std::string& name) const {
  const StoredTensor& stored = tensors_[positions_.at(name)];
  at::Tensor whole = at::empty(stored.shape, at::TensorOptions(stored.dtype));
  read(name, {static_cast<std::byte*>(whole.data_ptr()), whole.nbytes()});
  return whole;
}

void PiecedSource::read(const std::string& name, std::span<std::byte> bytes) const {
  const files::PiecedTensor& tensor = pieced(name);
  const uint64_t stored = *files::tensor_bytes(tensor.dtype, tensor.shape);
  if (stored != bytes.size()) {
    throw CheckpointError({.what = "tensor " + in_quotes(name) + " has " + std::to_string(stored) +
                                   " bytes where " + std::to_string(bytes.size()) + " are expected",
                           .where = source_.folder().string(),
                           .hint = "load it into the model that was saved"});
  }
  MemoryFill fill(bytes);
  source_.write(tensor, fill);
  if (tensor.dtype == files::TensorDtype::kBool) {
    check_bools(bytes, "tensor " + in_quotes(name), source_.folder().string());
  }
}

std::optional<std::string> PiecedSource::param_groups() const {
  const auto groups = source_.metadata().find(files::kParamGroupsKey);
  if (groups == source_.metadata().end()) return std::nullopt;
  return groups->second;
}

}  // namespace accelerate::checkpoint
