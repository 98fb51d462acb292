// Files of torch.save, read and written without Python.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/state_dict.h"

namespace accelerate {

class TorchDict;
class TorchValue;
// Declared here because a friend declaration cannot be exported; see the classes.
ACCELERATE_EXPORT bool operator==(const TorchDict& left, const TorchDict& right);
ACCELERATE_EXPORT bool operator==(const TorchValue& left, const TorchValue& right);

// A Python dict or collections.OrderedDict: values by keys of any hashable kind, in the order in
// which they were added. A value type.
class ACCELERATE_EXPORT TorchDict {
 public:
  using Entry = std::pair<TorchValue, TorchValue>;
  enum class Kind { kDict, kOrderedDict };

  explicit TorchDict(Kind kind = Kind::kDict);
  TorchDict(std::initializer_list<Entry> entries, Kind kind = Kind::kDict);

  // Adds the value, or replaces the one of that key. Compares with all keys: to fill a large
  // dictionary of keys that are known to differ, use add().
  void set(TorchValue key, TorchValue value);
  void add(TorchValue key, TorchValue value);

  // nullptr where there is no such key; valid until the next change.
  const TorchValue* find(std::string_view key) const;
  const TorchValue* find(int64_t key) const;
  const TorchValue* find_key(const TorchValue& key) const;
  // Throws CheckpointError that names the key if it is missing.
  const TorchValue& at(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const;
  Kind kind() const { return kind_; }

  // Equal kinds, keys and values in the same order.
  friend bool operator==(const TorchDict& left, const TorchDict& right);

 private:
  Kind kind_;
  std::vector<Entry> entries_;
};

struct TorchBytes {
  std::string bytes{};
  friend bool operator==(const TorchBytes&, const TorchBytes&) = default;
};

// An integer that int64_t cannot hold, in decimal.
struct TorchBigInteger {
  std::string digits{};
  friend bool operator==(const TorchBigInteger&, const TorchBigInteger&) = default;
};

// torch.Size.
struct TorchSize {
  std::vector<int64_t> sizes{};
  friend bool operator==(const TorchSize&, const TorchSize&) = default;
};

struct TorchTuple {
  std::vector<TorchValue> items;
};

// A set, in the order of the file.
struct TorchSet {
  std::vector<TorchValue> items;
};

// A NumPy array, as in the states of NumPy's random numbers. Read, never written.
struct TorchNumpyArray {
  at::Tensor values{};
};

// What torch.save can hold and this library understands. A value type, except that copies of a
// tensor share its memory. The reading calls throw CheckpointError if the value is of another
// kind.
class ACCELERATE_EXPORT TorchValue {
 public:
  using List = std::vector<TorchValue>;
  using Variant = std::variant<std::monostate, bool, int64_t, double, std::string, TorchBytes,
                               TorchBigInteger, List, TorchTuple, TorchSet, TorchDict, TorchSize,
                               at::ScalarType, c10::Device, at::Tensor, TorchNumpyArray>;

  TorchValue() = default;
  // NOLINTBEGIN(google-explicit-constructor): a value is what it holds
  TorchValue(bool value) : value_(value) {}
  template <std::integral Integer>
  requires(!std::same_as<Integer, bool>) TorchValue(Integer value)
      : value_(static_cast<int64_t>(value)) {}
  TorchValue(double value) : value_(value) {}
  TorchValue(const char* value) : value_(std::string(value)) {}
  TorchValue(std::string value) : value_(std::move(value)) {}
  TorchValue(TorchBytes value) : value_(std::move(value)) {}
  TorchValue(TorchBigInteger value) : value_(std::move(value)) {}
  TorchValue(List value) : value_(std::move(value)) {}
  TorchValue(TorchTuple value) : value_(std::move(value)) {}
  TorchValue(TorchSet value) : value_(std::move(value)) {}
  TorchValue(TorchDict value) : value_(std::move(value)) {}
  TorchValue(TorchSize value) : value_(std::move(value)) {}
  TorchValue(at::ScalarType value) : value_(value) {}
  TorchValue(c10::Device value) : value_(value) {}
  TorchValue(at::Tensor value) : value_(std::move(value)) {}
  TorchValue(TorchNumpyArray value) : value_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)

  bool is_none() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_tensor() const { return std::holds_alternative<at::Tensor>(value_); }
  bool is_dict() const { return std::holds_alternative<TorchDict>(value_); }

  bool as_bool() const;
  int64_t as_integer() const;
  double as_number() const;  // also of an integer
  const std::string& as_string() const;
  // Of a list or a tuple.
  const std::vector<TorchValue>& as_sequence() const;
  const TorchDict& as_dict() const;
  const at::Tensor& as_tensor() const;

  const Variant& variant() const { return value_; }
  // What it is, for messages: "a dict", "a tensor".
  const char* kind() const;

  // Tensors are equal if dtype, shape and bits are.
  friend bool operator==(const TorchValue& left, const TorchValue& right);

 private:
  template <class T>
  const T& get(const char* expected) const;

  Variant value_;
};

// Reads a file of torch.save in the zip format, which torch writes since 1.6. Nothing of it is ever
// executed: values of types other than those of TorchValue are refused by name.
//
// Tensors lie on the CPU, whatever device they were saved from; tensors that shared their memory
// share it again, with their strides and offsets; requires_grad is not restored. Their bytes are
// those of the file mapped into memory (copied where they are not aligned): writing to them changes
// this process's pages alone, and they keep the mapping. The file must not be overwritten in place
// meanwhile; replacing or deleting it is safe. NumPy's numbers become Python's, Counter becomes
// dict, attributes of an OrderedDict are left out.
//
// Blocks while the bytes are read once to check their CRC-32. Any thread. Throws CheckpointError
// that names the file if it is missing, damaged, hostile, of the format before 1.6, or holds
// something else.
ACCELERATE_EXPORT TorchValue load_torch_archive(const std::filesystem::path& path);

// Writes a file that torch.load(path, weights_only=True) takes. Tensors of other devices are copied
// to the host one by one and are marked as CPU tensors; tensors that share their memory share it in
// the file, where that memory is written whole. Blocks until the bytes are on the disk. The file
// gets its name, replacing an existing one, only once it is complete.
//
// Throws CheckpointError if it cannot be written or the value holds what the format cannot: a NumPy
// array, or a tensor without memory of its own (undefined, sparse, quantized, meta). Nothing has
// changed then.
ACCELERATE_EXPORT void save_torch_archive(const std::filesystem::path& path,
                                          const TorchValue& value);

// A StateValue as torch.save would hold it, and back. Back, tuples, sizes and sets become lists,
// integer keys become strings. Throws CheckpointError that names the place of a value that
// has no counterpart.
ACCELERATE_EXPORT TorchValue to_torch_value(const StateValue& value);
ACCELERATE_EXPORT StateValue to_state_value(const TorchValue& value);
inline StateDict to_state_dict(const TorchValue& value) { return to_state_value(value).as_dict(); }

}  // namespace accelerate
