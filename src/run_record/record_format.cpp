#include "run_record/record_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "base/fnv1a.h"

namespace accelerate::run_record {
namespace {

constexpr size_t kMostText = 4096;
constexpr size_t kMostItems = 256;  // of a list
static_assert(std::endian::native == std::endian::little, "numbers are written as they are");

// --- Writing -----------------------------------------------------------------------------------

class Encoder {
 public:
  explicit Encoder(std::string& bytes) : bytes_(bytes) {}

  void put(uint64_t value) {
    while (value >= 0x80) {
      bytes_ += static_cast<char>(value | 0x80);
      value >>= 7;
    }
    bytes_ += static_cast<char>(value);
  }
  // Small numbers of either sign are short.
  void put(int64_t value) {
    put(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  }
  void put(bool value) { bytes_ += static_cast<char>(value); }
  void put(double value) {
    std::array<char, sizeof value> raw{};
    std::memcpy(raw.data(), &value, sizeof value);
    bytes_.append(raw.data(), raw.size());
  }
  void put(const std::string& text) {
    size_t size = std::min(text.size(), kMostText);
    while (size < text.size() && size > 0 && (text[size] & 0xc0) == 0x80) --size;  // whole UTF-8
    put(static_cast<uint64_t>(size));
    bytes_.append(text, 0, size);
  }
  template <class T>
  requires std::is_enum_v<T>
  void put(T value) { bytes_ += static_cast<char>(value); }
  template <class T>
  void put(const std::vector<T>& list) {
    const size_t count = std::min(list.size(), kMostItems);
    put(static_cast<uint64_t>(count));
    for (size_t i = 0; i < count; ++i) put(list[i]);
  }
  template <class T>
  requires requires(const T& value) { T::fields(value); }
  void put(const T& value) {
    std::apply([&](const auto&... field) { (put(field), ...); }, T::fields(value));
  }

 private:
  std::string& bytes_;
};

// --- Reading -----------------------------------------------------------------------------------

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  bool take(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) return false;
      const auto byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      if (shift == 63 && byte > 1) return false;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  bool take(int64_t& value) {
    uint64_t folded = 0;
    if (!take(folded)) return false;
    value = static_cast<int64_t>(folded >> 1 ^ (~(folded & 1) + 1));
    return true;
  }
  bool take(bool& value) {
    if (bytes_.empty()) return false;
    value = bytes_.front() != 0;
    bytes_.remove_prefix(1);
    return true;
  }
  bool take(double& value) {
    if (bytes_.size() < sizeof value) return false;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return true;
  }
  bool take(std::string& text) {
    uint64_t size = 0;
    if (!take(size) || size > bytes_.size() || size > kMostText) return false;
    text = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return true;
  }
  template <class T>
  requires std::is_enum_v<T>
  bool take(T& value) {
    if (bytes_.empty()) return false;
    value = static_cast<T>(bytes_.front());
    bytes_.remove_prefix(1);
    return true;
  }
  template <class T>
  bool take(std::vector<T>& list) {
    uint64_t count = 0;
    if (!take(count) || count > kMostItems) return false;
    for (; count > 0; --count) {
      T item{};
      if (!take(item)) return false;
      list.push_back(std::move(item));
    }
    return true;
  }
  template <class T>
  requires requires(T& value) { T::fields(value); }
  bool take(T& value) {
    return std::apply([&](auto&... field) { return (take(field) && ...); }, T::fields(value));
  }

 private:
  std::string_view bytes_;
};

template <size_t kIndex = 0>
std::optional<Record> decode_as(RecordKind kind, std::string_view payload) {
  if constexpr (kIndex == std::variant_size_v<Record>) {
    return std::nullopt;
  } else {
    using T = std::variant_alternative_t<kIndex, Record>;
    if (T::kKind != kind) return decode_as<kIndex + 1>(kind, payload);
    T record;
    return Decoder(payload).take(record) ? std::optional<Record>(std::move(record)) : std::nullopt;
  }
}

std::string_view writer_name(WriterKind writer) {
  switch (writer) {
    case WriterKind::kRank:
      return "rank";
    case WriterKind::kCommand:
      return "command";
    case WriterKind::kLauncher:
      return "launcher";
    case WriterKind::kMachine:
      return "machine";
  }
  return "unknown";
}

}  // namespace

uint32_t checksum(std::string_view frame_tail, std::string_view payload) {
  const uint64_t hash = Fnv1a().add(frame_tail).add(payload).value();
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

void encode(const Record& record, std::string& bytes) {
  const size_t begin = bytes.size();
  bytes.append(kFrameBytes, '\0');
  std::visit([&](const auto& any) { Encoder(bytes).put(any); }, record);
  // Lists of long texts are the only records that could be larger; what is cut off does not decode,
  // so it is not written.
  const size_t size = bytes.size() - begin - kFrameBytes;
  if (size > kMostPayload) {
    bytes.resize(begin);
    return;
  }
  char* frame = bytes.data() + begin;
  const auto short_size = static_cast<uint16_t>(size);
  std::memcpy(frame + 4, &short_size, sizeof short_size);
  frame[6] = static_cast<char>(
      std::visit([](const auto& any) { return std::decay_t<decltype(any)>::kKind; }, record));
  const uint32_t check = checksum({frame + 4, 4}, {frame + kFrameBytes, size});
  std::memcpy(frame, &check, sizeof check);
}

std::optional<Record> decode(RecordKind kind, std::string_view payload) {
  return decode_as(kind, payload);
}

std::string file_name(WriterKind writer, uint64_t index, int number) {
  std::array<char, 64> name{};
  const std::string_view kind = writer_name(writer);
  std::snprintf(name.data(), name.size(), "%.*s_%llu-%03d.rec", static_cast<int>(kind.size()),
                kind.data(), static_cast<unsigned long long>(index), number);
  return name.data();
}

}  // namespace accelerate::run_record
