#include "accelerate/detail/packed_value.h"

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>
#include <c10/util/Type.h>

#include <cstring>
#include <limits>
#include <sstream>

#include "accelerate/detail/collated.h"
#include "accelerate/errors.h"
#include "base/fnv1a.h"
#include "data/plain_tensor.h"

// The header, with numbers in the byte order of the machine:
//   magic (8 bytes), hash of the type's name (8), length of the tensor data (8), then the nodes in
//   the order of walk(). A node is its kind (1) and
//     structure of fixed shape   nothing
//     other structure            children (8), keys (8), each key as length (8) and text
//     tensor                     dtype (1, -1: undefined), dimensions (1), sizes and offset (8
//     each) rows                       count (8), then numbers as they lie in memory, flags of a
//                                std::vector<bool> in a byte each, strings as constant nodes
//     constant                   as it lies in memory; a string as length (8) and text
namespace accelerate::detail {
namespace {

constexpr uint64_t kPackedMagic = 0x3130564b43415041;
constexpr int64_t kAlignment = 64;
constexpr int8_t kUndefined = -1;
using Sizes = c10::SmallVector<int64_t, 6>;

template <class T>
void append(std::string& header, T number) {
  header.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void append_text(std::string& header, std::string_view text) {
  append(header, static_cast<uint64_t>(text.size()));
  header.append(text);
}

uint64_t hash_of(const std::type_info& type) { return fnv1a(type.name()); }

int64_t round_up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The elements of a contiguous tensor, or -1 if there is no such tensor.
int64_t numel_of(at::IntArrayRef sizes) {
  int64_t spread = 1;  // as if no dimension were empty: strides must not overflow either
  int64_t numel = 1;
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(spread, std::max(size, int64_t{1}), &spread)) return -1;
    numel *= size;
  }
  return numel;
}

// A tensor of these sizes on the memory of `bytes`, which has room for it.
at::Tensor view_of(const at::Tensor& bytes, int64_t offset, at::ScalarType dtype,
                   at::IntArrayRef sizes) {
  const auto options = bytes.options().dtype(dtype);
  if (numel_of(sizes) == 0) return at::empty(sizes, options);
  Sizes strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i > 1; --i) strides[i - 2] = strides[i - 1] * sizes[i - 1];
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  return at::empty({0}, options)
      .set_(bytes.storage(), (bytes.storage_offset() + offset) / element, sizes, strides);
}

// Memory that a tensor of any dtype may begin in, at the offsets of the header.
bool is_aligned(const at::Tensor& bytes) {
  constexpr int64_t kLargestElement = 16;
  return bytes.storage_offset() % kLargestElement == 0 &&
         reinterpret_cast<uintptr_t>(bytes.data_ptr()) % kLargestElement == 0;
}

}  // namespace

Packer::Packer(const std::type_info& type) {
  append(header_, kPackedMagic);
  append(header_, hash_of(type));
  append(header_, int64_t{0});
}

void Packer::structure() { append(header_, NestedKind::kStructure); }

void Packer::structure(const NestedShape& shape) {
  append(header_, NestedKind::kStructure);
  append(header_, shape.size);
  append(header_, static_cast<uint64_t>(shape.keys.size()));
  for (const std::string& key : shape.keys) append_text(header_, key);
}

void Packer::tensor(const NestedPath& path, const at::Tensor& tensor) {
  append(header_, NestedKind::kTensor);
  if (!tensor.defined()) return append(header_, kUndefined);
  if (tensor.layout() != at::kStrided || tensor.is_quantized() || tensor.is_meta()) {
    std::ostringstream what;
    what << "a tensor of layout " << tensor.layout() << " and dtype " << tensor.scalar_type()
         << " on " << tensor.device() << " cannot be sent to another process";
    throw DataError({.what = what.str(), .where = path.str(), .hint = "make it a dense tensor"});
  }
  append(header_, static_cast<int8_t>(tensor.scalar_type()));
  append(header_, static_cast<uint8_t>(tensor.dim()));
  for (const int64_t size : tensor.sizes()) append(header_, size);
  append(header_, bytes_);
  tensors_.push_back(tensor);
  bytes_ += round_up(static_cast<int64_t>(tensor.nbytes()));
}

void Packer::constant(const void* bytes, size_t size) {
  append(header_, NestedKind::kConstant);
  if (size > 0) header_.append(static_cast<const char*>(bytes), size);
}

void Packer::constant(const std::string& text) {
  append(header_, NestedKind::kConstant);
  append_text(header_, text);
}

void Packer::rows(size_t size) {
  append(header_, NestedKind::kRows);
  append(header_, static_cast<uint64_t>(size));
}

void Packer::bits(const std::vector<bool>& flags) {
  rows(flags.size());
  for (const bool flag : flags) header_.push_back(flag ? '\1' : '\0');
}

PackedValue Packer::finish() {
  std::memcpy(header_.data() + 2 * sizeof(uint64_t), &bytes_, sizeof(bytes_));
  at::NoGradGuard no_grad;
  at::Tensor bytes = empty_batch({bytes_}, at::kByte);
  auto* begin = static_cast<char*>(bytes.data_ptr());
  int64_t offset = 0;
  for (const at::Tensor& tensor : tensors_) {
    const size_t size = tensor.nbytes();
    if (size > 0 && is_plain(tensor)) {
      std::memcpy(begin + offset, tensor.data_ptr(), size);
    } else if (size > 0) {
      view_of(bytes, offset, tensor.scalar_type(), tensor.sizes()).copy_(tensor);
    }
    // The gap to the next tensor too: what is sent must not hold what this memory held before.
    const int64_t end = offset + static_cast<int64_t>(size);
    offset = round_up(end);
    if (offset > end) std::memset(begin + end, 0, static_cast<size_t>(offset - end));
  }
  tensors_.clear();
  return {.header = std::move(header_), .bytes = std::move(bytes)};
}

void Unpacker::refuse(const std::string& why) {
  throw DataError({.what = "a packed value cannot be read: it has " + why,
                   .hint = "all processes must run the same program"});
}

Unpacker::Unpacker(std::string_view header, at::Tensor bytes, const std::type_info& type)
    : header_(header), bytes_(std::move(bytes)) {
  if (take_number<uint64_t>() != kPackedMagic) refuse("a header of another kind");
  if (take_number<uint64_t>() != hash_of(type)) {
    refuse("another type than " + c10::demangle(type.name()));
  }
  const auto size = take_number<int64_t>();
  if (!bytes_.defined() || bytes_.scalar_type() != at::kByte || bytes_.dim() != 1 ||
      !bytes_.is_contiguous()) {
    refuse("tensor data that is not a contiguous tensor of bytes");
  }
  if (size < 0 || bytes_.numel() < size) {
    refuse(std::to_string(bytes_.numel()) + " bytes of tensor data, its header says " +
           std::to_string(size));
  }
  if (!is_aligned(bytes_)) bytes_ = bytes_.clone();
}

std::string_view Unpacker::take(size_t size) {
  if (size > header_.size()) refuse("a header that ends too early");
  const std::string_view taken = header_.substr(0, size);
  header_.remove_prefix(size);
  return taken;
}

template <class T>
T Unpacker::take_number() {
  T number;
  std::memcpy(&number, take(sizeof(T)).data(), sizeof(T));
  return number;
}

void Unpacker::expect(NestedKind kind) {
  if (take_number<uint8_t>() != static_cast<uint8_t>(kind)) {
    refuse("a header of another structure");
  }
}

void Unpacker::structure() { expect(NestedKind::kStructure); }

NestedShape Unpacker::shape() {
  expect(NestedKind::kStructure);
  NestedShape shape{.size = take_number<int64_t>()};
  const auto keys = take_number<uint64_t>();
  // Every child and every key takes a byte at least.
  if (shape.size < 0 || static_cast<uint64_t>(shape.size) > header_.size() ||
      keys > header_.size()) {
    refuse("a length that its header has no room for");
  }
  shape.keys.reserve(keys);
  for (uint64_t i = 0; i < keys; ++i) {
    shape.keys.emplace_back(take(take_number<uint64_t>()));
  }
  return shape;
}

at::Tensor Unpacker::tensor() {
  expect(NestedKind::kTensor);
  const auto code = take_number<int8_t>();
  if (code == kUndefined) return {};
  if (code < 0 || code >= static_cast<int8_t>(at::ScalarType::NumOptions)) {
    refuse("a tensor of unknown dtype");
  }
  const auto dtype = static_cast<at::ScalarType>(code);
  if (dtype == at::ScalarType::Undefined || c10::isQIntType(dtype)) {
    refuse("a tensor of a dtype that is never packed");
  }
  Sizes sizes(take_number<uint8_t>());
  for (int64_t& size : sizes) size = take_number<int64_t>();
  const auto offset = take_number<int64_t>();
  const int64_t numel = numel_of(sizes);
  const auto element = static_cast<int64_t>(c10::elementSize(dtype));
  const bool fits = numel >= 0 && offset >= 0 && offset % kAlignment == 0 &&
                    offset <= bytes_.numel() && numel <= (bytes_.numel() - offset) / element;
  if (!fits) refuse("a tensor that lies outside of its data");
  return view_of(bytes_, offset, dtype, sizes);
}

void Unpacker::constant(void* bytes, size_t size) {
  expect(NestedKind::kConstant);
  const std::string_view taken = take(size);
  if (size > 0) std::memcpy(bytes, taken.data(), size);
}

void Unpacker::constant(std::string& text) {
  expect(NestedKind::kConstant);
  text = take(take_number<uint64_t>());
}

void Unpacker::constant(bool& flag) {
  expect(NestedKind::kConstant);
  const auto byte = take_number<uint8_t>();
  if (byte > 1) refuse("a boolean that is neither true nor false");
  flag = byte == 1;
}

size_t Unpacker::rows(size_t row_bytes) {
  expect(NestedKind::kRows);
  const auto size = take_number<uint64_t>();
  if (size > header_.size() / row_bytes) refuse("a length that its header has no room for");
  return size;
}

void Unpacker::bits(std::vector<bool>& flags) {
  const std::string_view bytes = take(rows(1));
  flags.resize(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) flags[i] = bytes[i] != '\0';
}

void Unpacker::finish() const {
  if (!header_.empty()) refuse("a header that goes on after its end");
}

}  // namespace accelerate::detail
