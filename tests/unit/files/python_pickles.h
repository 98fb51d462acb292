// Pickles and files of torch.save as Python writes them, put together from their instructions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/pickle/zip_format.h"
#include "files/pickle/zip_writer.h"
#include "unit/files/safetensors_files.h"

namespace accelerate::test::py {

// The little-endian bytes of a number.
template <class Number>
std::string number_bytes(Number number) {
  std::string bytes;
  files::zip::append_number(bytes, number);
  return bytes;
}

// Each of these is a piece of a pickle of protocol 2 that leaves one value on the stack.
using Value = std::string;

inline Value none() { return "N"; }
inline Value boolean(bool value) { return value ? "\x88" : "\x89"; }
inline Value text(std::string_view value) {
  return "X" + number_bytes(static_cast<uint32_t>(value.size())) + std::string(value);
}
inline Value integer(int64_t value) {
  return std::string("\x8a\x08", 2) + number_bytes(static_cast<uint64_t>(value));
}
inline Value number(double value) {
  std::string bytes = number_bytes(__builtin_bit_cast(uint64_t, value));
  return "G" + std::string(bytes.rbegin(), bytes.rend());
}
inline Value sequence(char end, const std::vector<Value>& items) {
  std::string all = "(";
  for (const Value& item : items) all += item;
  return all + end;
}
inline Value tuple(const std::vector<Value>& items) { return sequence('t', items); }
inline Value list(const std::vector<Value>& items) { return "]" + sequence('e', items); }
inline Value dict(const std::vector<std::pair<Value, Value>>& entries) {
  std::string all = "}(";
  for (const auto& [key, value] : entries) all += key + value;
  return all + "u";
}
inline Value global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline Value call(const std::string& module, const std::string& name,
                  const std::vector<Value>& arguments) {
  return global(module, name) + tuple(arguments) + "R";
}
// An instance with that state.
inline Value object(const std::string& module, const std::string& name, const Value& state) {
  return global(module, name) + ")\x81" + state + "b";
}

inline std::vector<Value> integers(const std::vector<uint64_t>& numbers) {
  std::vector<Value> values;
  for (const uint64_t value : numbers) values.push_back(integer(static_cast<int64_t>(value)));
  return values;
}
inline Value size(const std::vector<uint64_t>& sizes) {
  return call("torch", "Size", {tuple(integers(sizes))});
}

inline std::string pickle(const Value& root) { return "\x80\x02" + root + "."; }

inline std::vector<uint64_t> row_major(const std::vector<uint64_t>& shape) {
  std::vector<uint64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// What the bytes of an element are called.
struct ElementType {
  std::string dtype = "float32";
  std::string storage = "FloatStorage";
  size_t bytes = 4;
};
inline const ElementType kFloat{};
inline const ElementType kBfloat{"bfloat16", "BFloat16Storage", 2};
inline const ElementType kLong{"int64", "LongStorage", 8};
inline const ElementType kBool{"bool", "BoolStorage", 1};

// A file of torch.save.
class TorchFile {
 public:
  // A tensor with a memory of its own.
  Value tensor(const std::string& bytes, const std::vector<uint64_t>& shape,
               const ElementType& type = kFloat, std::vector<uint64_t> strides = {}) {
    const std::string key = std::to_string(storages_.size());
    storages_.push_back(bytes);
    if (strides.empty()) strides = row_major(shape);
    const Value storage =
        tuple({text("storage"), global("torch", type.storage), text(key), text("cpu"),
               integer(static_cast<int64_t>(bytes.size() / type.bytes))}) +
        "Q";
    return call("torch._utils", "_rebuild_tensor_v2",
                {storage, integer(0), tuple(integers(shape)), tuple(integers(strides)),
                 boolean(false), call("collections", "OrderedDict", {})});
  }

  std::string file(const Value& root) const {
    MemorySink sink;
    files::ZipWriter zip(sink);
    zip.add_entry("archive/data.pkl", pickle(root));
    zip.add_entry("archive/byteorder", "little");
    for (size_t i = 0; i < storages_.size(); ++i) {
      zip.add_entry("archive/data/" + std::to_string(i), storages_[i]);
    }
    zip.add_entry("archive/version", "3\n");
    zip.finish();
    return sink.text;
  }

 private:
  std::vector<std::string> storages_;
};

// The same archive written without checksums, as torch can be told to.
inline std::string without_checksums(std::string archive) {
  const std::string header = number_bytes(files::zip::kCentralHeader);
  for (size_t at = archive.find(header); at != archive.npos; at = archive.find(header, at + 1)) {
    archive.replace(at + 16, 4, 4, '\0');
  }
  return archive;
}

}  // namespace accelerate::test::py
