// What a pickle of torch.save holds, once read: plain data, nothing to execute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace accelerate::files {

// A value's place in PickleDocument::values. Values refer to each other by it: what the pickle
// shares is shared here too, and a list may even hold itself.
using PickleIndex = uint32_t;

struct PickleText {
  std::string text;  // UTF-8
};
struct PickleBytes {
  std::string bytes;
};
// An integer that int64_t cannot hold, in decimal.
struct PickleBigInteger {
  std::string digits;
};
struct PickleSequence {
  enum class Kind : uint8_t { kList, kTuple, kSet };
  Kind kind;
  std::vector<PickleIndex> items;
};
struct PickleDict {
  bool is_ordered;  // collections.OrderedDict
  std::vector<std::pair<PickleIndex, PickleIndex>> entries;
};
struct PickleSize {
  std::vector<int64_t> sizes;
};
struct PickleDtype {
  std::string_view name;  // of a static table: "float32"
};
struct PickleDevice {
  std::string name;  // "cpu", "cuda:1"
};
// The memory of tensors: an entry of the archive.
struct PickleStorage {
  std::string_view dtype;  // "uint8" if it is untyped
  bool is_untyped;
  std::string key;  // the entry's name inside the folder data/
  uint64_t elements;
};
struct PickleTensor {
  std::string_view dtype;
  PickleIndex storage;
  int64_t offset;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  bool is_conjugate;  // lazily: the bytes are not
  bool is_negative;   // likewise
};
// A type of NumPy: 'f' and 8 for float64, little-endian.
struct PickleNumpyType {
  char kind;
  uint8_t bytes;
};
struct PickleNumpyArray {
  PickleNumpyType type;
  bool is_column_major;
  std::vector<int64_t> sizes;
  std::string bytes;
};
// A class or function that a format beside torch.save may name. Both live for ever.
struct PickleClass {
  std::string_view module;
  std::string_view name;

  bool operator==(const PickleClass&) const = default;
};
// What a call of such a class or function would be: nothing is called, what it was given is kept.
struct PickleRecord {
  const PickleClass* type;
  PickleIndex arguments;               // a tuple
  std::optional<PickleIndex> state{};  // what __setstate__ would be given
};

// A class or function that a pickle of torch.save may name. Part of a value, no value itself.
struct PickleGlobal {
  enum class Callable : uint8_t {
    kOrderedDict,
    kCounter,
    kSet,
    kBytes,
    kBytearray,
    kEncode,  // _codecs.encode: how old protocols write bytes
    kSize,
    kDevice,
    kStorage,  // a class of storages
    kRebuildTensorV2,
    kRebuildTensorV3,
    kRebuildParameter,
    kRebuildFromType,  // a tensor with attributes
    kTensorClass,
    kNumpyType,
    kNumpyArrayClass,
    kNumpyReconstruct,
    kNumpyScalar,
    kRecord,  // of `type`
  };
  Callable callable;
  std::string_view dtype{};           // of a storage's elements
  const PickleClass* type = nullptr;  // of a record
};

// Kept apart where it is large: most values are not.
template <class T>
using PickleBox = std::unique_ptr<T>;

using PickleValue =
    std::variant<std::monostate, bool, int64_t, double, PickleText, PickleBytes, PickleBigInteger,
                 PickleSequence, PickleDict, PickleSize, PickleDtype, PickleDevice,
                 PickleBox<PickleStorage>, PickleBox<PickleTensor>, PickleNumpyType,
                 PickleBox<PickleNumpyArray>, PickleBox<PickleRecord>, PickleBox<PickleGlobal>>;

struct PickleDocument {
  std::vector<PickleValue> values;
  PickleIndex root = 0;

  const PickleValue& at(PickleIndex index) const { return values[index]; }
};

}  // namespace accelerate::files
