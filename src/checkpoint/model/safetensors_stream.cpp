#include "checkpoint/model/safetensors_stream.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "checkpoint/model/shared_tensors.h"
#include "files/safetensors/safetensors_header.h"

namespace accelerate::checkpoint {
namespace {

using files::TensorDtype;

static_assert(std::endian::native == std::endian::little,
              "the memory of a tensor is written as it is; the format is little-endian");

constexpr std::array<std::pair<TensorDtype, at::ScalarType>, 19> kDtypes{{
    {TensorDtype::kBool, at::kBool},
    {TensorDtype::kU8, at::kByte},
    {TensorDtype::kI8, at::kChar},
    {TensorDtype::kF8E5M2, at::kFloat8_e5m2},
    {TensorDtype::kF8E4M3, at::kFloat8_e4m3fn},
    {TensorDtype::kF8E8M0, at::kFloat8_e8m0fnu},
    {TensorDtype::kF8E4M3Fnuz, at::kFloat8_e4m3fnuz},
    {TensorDtype::kF8E5M2Fnuz, at::kFloat8_e5m2fnuz},
    {TensorDtype::kI16, at::kShort},
    {TensorDtype::kU16, at::kUInt16},
    {TensorDtype::kF16, at::kHalf},
    {TensorDtype::kBF16, at::kBFloat16},
    {TensorDtype::kI32, at::kInt},
    {TensorDtype::kU32, at::kUInt32},
    {TensorDtype::kF32, at::kFloat},
    {TensorDtype::kC64, at::kComplexFloat},
    {TensorDtype::kF64, at::kDouble},
    {TensorDtype::kI64, at::kLong},
    {TensorDtype::kU64, at::kUInt64},
}};

[[noreturn]] void refuse_tensor(const std::string& name, const std::string& what,
                                const std::string& hint) {
  throw UsageError({.what = "tensor " + in_quotes(name) + " " + what, .hint = hint});
}

files::SafetensorsEntry entry_of(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) refuse_tensor(name, "is undefined", "leave it out");
  if (tensor.layout() != at::kStrided) {
    refuse_tensor(name, "is sparse, which safetensors files cannot hold", "save tensor.to_dense()");
  }
  if (tensor.is_meta())
    refuse_tensor(name, "is a meta tensor: it has no values", "load the model first");
  const auto dtype = file_dtype(tensor.scalar_type());
  if (!dtype) {
    refuse_tensor(name,
                  std::string("has the type ") + c10::toString(tensor.scalar_type()) +
                      ", which safetensors files cannot hold",
                  "convert it");
  }
  files::SafetensorsEntry entry{.name = name, .dtype = *dtype};
  for (const int64_t size : tensor.sizes()) entry.shape.push_back(static_cast<uint64_t>(size));
  return entry;
}

struct Plan {
  NamedTensors tensors;  // those that are written
  files::SafetensorsLayout layout;
};

Plan plan_file(const NamedTensors& tensors, SafetensorsMetadata metadata) {
  auto [kept, aliases] = drop_aliases(tensors);
  for (const auto& [alias, name] : aliases) {
    // A name that the metadata need for something else is written like any other tensor.
    if (alias == "format" || !metadata.emplace(alias, name).second) {
      kept.insert(alias, tensors[alias]);
    }
  }
  std::vector<files::SafetensorsEntry> entries;
  entries.reserve(kept.size());
  for (const auto& item : kept) entries.push_back(entry_of(item.key(), item.value()));
  return {.tensors = std::move(kept),
          .layout = files::lay_out_safetensors(std::move(entries), metadata)};
}

bool is_plain_memory(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// The bytes of tensors, one after the other, in row-major order. Those that are not plain memory of
// the host are copied into one buffer, as large as the largest of them: a buffer for each would
// leave holes in the heap that add up to a second model.
class RowMajorBytes {
 public:
  explicit RowMajorBytes(const NamedTensors& tensors) {
    for (const auto& item : tensors) {
      if (!is_plain_memory(item.value())) most_ = std::max(most_, item.value().nbytes());
    }
  }

  // Valid until the next call, while the tensor lives.
  std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
    const size_t bytes = tensor.nbytes();
    if (bytes == 0) return {};
    if (is_plain_memory(tensor)) return {static_cast<const std::byte*>(tensor.data_ptr()), bytes};
    if (!buffer_.defined()) buffer_ = at::empty({static_cast<int64_t>(most_)}, at::kByte);
    at::from_blob(buffer_.data_ptr(), tensor.sizes(), at::TensorOptions(tensor.scalar_type()))
        .copy_(tensor.detach());
    return {static_cast<const std::byte*>(buffer_.data_ptr()), bytes};
  }

 private:
  size_t most_ = 0;
  at::Tensor buffer_;
};

}  // namespace

std::optional<TensorDtype> file_dtype(at::ScalarType dtype) {
  for (const auto& [in_file, in_torch] : kDtypes) {
    if (in_torch == dtype) return in_file;
  }
  return std::nullopt;
}

std::optional<at::ScalarType> torch_dtype(TensorDtype dtype) {
  for (const auto& [in_file, in_torch] : kDtypes) {
    if (in_file == dtype) return in_torch;
  }
  return std::nullopt;
}

void write_safetensors(files::ByteSink& sink, const NamedTensors& tensors,
                       const SafetensorsMetadata& metadata, const TensorValue& value_of) {
  const Plan plan = plan_file(tensors, metadata);
  RowMajorBytes copies(plan.tensors);
  sink.write(std::as_bytes(std::span(plan.layout.header)));
  for (const files::SafetensorsEntry& entry : plan.layout.entries) {
    const at::Tensor tensor = value_of ? value_of(entry.name) : plan.tensors[entry.name];
    sink.begin_part(entry.name);
    sink.write(copies.bytes_of(tensor));
  }
}

std::vector<std::string> safetensors_order(const NamedTensors& tensors,
                                           const SafetensorsMetadata& metadata) {
  std::vector<std::string> names;
  for (const files::SafetensorsEntry& entry : plan_file(tensors, metadata).layout.entries) {
    names.push_back(entry.name);
  }
  return names;
}

uint64_t safetensors_file_size(const NamedTensors& tensors, const SafetensorsMetadata& metadata) {
  return plan_file(tensors, metadata).layout.file_bytes();
}

}  // namespace accelerate::checkpoint
