// A nested value as bytes, for another process of the same program. Internal: users do not
// call it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/nested.h"

namespace accelerate::detail {

// All of a nested value: what is not tensor data in `header`, tensor data in `bytes`.
struct PackedValue {
  std::string header{};
  at::Tensor bytes{};  // kByte, contiguous, on the CPU; each tensor begins at a multiple of 64
};

// Writes what a value is made of, node after node. Each node takes at least one byte, so that a
// reader can tell a length that cannot be true.
class ACCELERATE_EXPORT Packer {
 public:
  explicit Packer(const std::type_info& type);

  void structure();
  void structure(const NestedShape& shape);
  // Throws DataError for a tensor that is not dense. `path` is for the message.
  void tensor(const NestedPath& path, const at::Tensor& tensor);
  void constant(const void* bytes, size_t size);
  void constant(const std::string& text);
  void rows(size_t size);
  void bits(const std::vector<bool>& rows);

  // Copies the tensors together: call it once, at the end. In pinned memory inside a
  // PinnedCollation.
  PackedValue finish();

 private:
  std::string header_;
  std::vector<at::Tensor> tensors_;  // contiguous, on the CPU, in the order of the header
  int64_t bytes_ = 0;
};

// Reads what a Packer wrote. Every call throws DataError if the header or the bytes cannot be from
// one of the same type.
class ACCELERATE_EXPORT Unpacker {
 public:
  // `header` must outlive it.
  Unpacker(std::string_view header, at::Tensor bytes, const std::type_info& type);

  void structure();
  NestedShape shape();
  at::Tensor tensor();  // a view of `bytes`
  void constant(void* bytes, size_t size);
  void constant(std::string& text);
  void constant(bool& flag);
  // The number of rows, each of which takes at least `row_bytes` in the header.
  size_t rows(size_t row_bytes);
  void bits(std::vector<bool>& rows);
  // That nothing is left.
  void finish() const;
  [[noreturn]] static void refuse(const std::string& why);

 private:
  std::string_view take(size_t size);
  template <class T>
  T take_number();
  void expect(NestedKind kind);

  std::string_view header_;
  at::Tensor bytes_;
};

// Tensors of other devices come to the CPU; none keeps its gradient.
template <Nested V>
PackedValue pack(const V& value) {
  Packer packer(typeid(V));
  auto node = [&](const NestedPath& path, const auto& part) {
    using T = std::remove_cvref_t<decltype(part)>;
    if constexpr (std::is_same_v<T, at::Tensor>) {
      packer.tensor(path, part);
    } else if constexpr (std::is_same_v<T, std::string>) {
      packer.constant(part);
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
      packer.bits(part);
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      packer.rows(part.size());
      for (const std::string& text : part) packer.constant(text);
    } else if constexpr (kKindOf<T> == NestedKind::kRows) {
      packer.rows(part.size());
      packer.constant(part.data(), part.size() * sizeof(part[0]));
    } else if constexpr (kKindOf<T> == NestedKind::kConstant) {
      packer.constant(&part, sizeof(part));
    } else if constexpr (HasShape<T>) {
      packer.structure(NestedTraits<T>::shape(part));
    } else {
      packer.structure();
    }
  };
  walk(value, node);
  return packer.finish();
}

// The value that pack() took apart. Its tensors are views of `bytes` and keep it alive; they are
// on its device. Throws DataError if `header` and `bytes` are not what pack() made of a V.
template <Nested V>
V unpack(std::string_view header, at::Tensor bytes) {
  Unpacker unpacker(header, std::move(bytes), typeid(V));
  V value{};
  auto node = [&](const NestedPath&, auto& part) {
    using T = std::remove_cvref_t<decltype(part)>;
    if constexpr (std::is_same_v<T, at::Tensor>) {
      part = unpacker.tensor();
    } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, bool>) {
      unpacker.constant(part);
    } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
      unpacker.bits(part);
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      part.resize(unpacker.rows(1));
      for (std::string& text : part) unpacker.constant(text);
    } else if constexpr (kKindOf<T> == NestedKind::kRows) {
      part.resize(unpacker.rows(sizeof(part[0])));
      unpacker.constant(part.data(), part.size() * sizeof(part[0]));
    } else if constexpr (kKindOf<T> == NestedKind::kConstant) {
      unpacker.constant(&part, sizeof(part));
    } else if constexpr (HasShape<T>) {
      const NestedShape shape = unpacker.shape();
      NestedTraits<T>::reshape(part, shape);
      if (NestedTraits<T>::shape(part) != shape) Unpacker::refuse("a shape that it cannot have");
    } else {
      unpacker.structure();
    }
  };
  walk(value, node);
  unpacker.finish();
  return value;
}

}  // namespace accelerate::detail
