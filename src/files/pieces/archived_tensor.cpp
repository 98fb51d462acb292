#include "files/pieces/archived_tensor.h"

#include <algorithm>
#include <array>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::files {
namespace {

constexpr std::array<std::pair<std::string_view, TensorDtype>, 19> kTorchDtypes{{
    {"bool", TensorDtype::kBool},
    {"uint8", TensorDtype::kU8},
    {"int8", TensorDtype::kI8},
    {"float8_e5m2", TensorDtype::kF8E5M2},
    {"float8_e4m3fn", TensorDtype::kF8E4M3},
    {"float8_e8m0fnu", TensorDtype::kF8E8M0},
    {"float8_e4m3fnuz", TensorDtype::kF8E4M3Fnuz},
    {"float8_e5m2fnuz", TensorDtype::kF8E5M2Fnuz},
    {"int16", TensorDtype::kI16},
    {"uint16", TensorDtype::kU16},
    {"float16", TensorDtype::kF16},
    {"bfloat16", TensorDtype::kBF16},
    {"int32", TensorDtype::kI32},
    {"uint32", TensorDtype::kU32},
    {"float32", TensorDtype::kF32},
    {"complex64", TensorDtype::kC64},
    {"float64", TensorDtype::kF64},
    {"int64", TensorDtype::kI64},
    {"uint64", TensorDtype::kU64},
}};

std::vector<uint64_t> unsigned_of(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};  // none is negative, as the reader has checked
}

bool is_row_major(const std::vector<uint64_t>& shape, const std::vector<uint64_t>& strides) {
  uint64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

}  // namespace

std::optional<TensorDtype> dtype_of_torch(std::string_view name) {
  const auto* found =
      std::ranges::find(kTorchDtypes, name, &std::pair<std::string_view, TensorDtype>::first);
  if (found == kTorchDtypes.end()) return std::nullopt;
  return found->second;
}

const PickleStorage& storage_of(const PickleArchive& archive, const PickleTensor& tensor) {
  return *std::get<PickleBox<PickleStorage>>(archive.document().at(tensor.storage));
}

ArchivedTensor locate_tensor(const PickleArchive& archive, const PickleTensor& tensor,
                             std::span<const std::byte> file, const std::string& subject,
                             const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    throw CheckpointError({.what = subject + what,
                           .where = where,
                           .hint = "convert it in the program that wrote the file"});
  };
  const auto dtype = dtype_of_torch(tensor.dtype);
  if (!dtype) {
    refuse(" has the type " + std::string(tensor.dtype) + ", which safetensors do not have");
  }
  if (tensor.is_conjugate || tensor.is_negative) refuse(" is the conjugate of what is stored");
  ArchivedTensor located{.dtype = *dtype, .elements = 1};
  TensorPiece& piece = located.piece;
  piece.shape = unsigned_of(tensor.sizes);
  piece.start.resize(piece.shape.size());
  // No overflow: the reader has made sure that the tensor lies inside its storage, unless strides
  // of zero repeat elements.
  bool repeats = false;
  for (const uint64_t size : piece.shape) {
    repeats |= __builtin_mul_overflow(located.elements, size, &located.elements);
  }
  const auto memory = archive.bytes(storage_of(archive, tensor));
  const uint64_t element_bytes = dtype_bits(*dtype) / 8;
  if (repeats || located.elements > memory.size() / element_bytes) {
    refuse(" has more elements than are stored: it repeats them");
  }
  if (located.elements == 0) return located;
  piece.offset = static_cast<uint64_t>(memory.data() - file.data()) +
                 static_cast<uint64_t>(tensor.offset) * element_bytes;
  std::vector<uint64_t> strides = unsigned_of(tensor.strides);
  if (!is_row_major(piece.shape, strides)) piece.strides = std::move(strides);
  return located;
}

}  // namespace accelerate::files
