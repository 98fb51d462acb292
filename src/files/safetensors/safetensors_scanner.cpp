#include "files/safetensors/safetensors_scanner.h"

#include <array>
#include <cstddef>
#include <utility>

namespace accelerate::files {
namespace {

constexpr size_t kMaxDigits = 19;  // every such number fits 64 bits
constexpr size_t kMaxScannedDimensions = 32;

// The bytes of a text that stand for themselves.
constexpr std::array<bool, 256> plain_bytes() {
  std::array<bool, 256> plain{};
  for (size_t byte = 0x20; byte < 0x80; ++byte) plain[byte] = byte != '"' && byte != '\\';
  return plain;
}
constexpr std::array<bool, 256> kPlain = plain_bytes();

// Goes through the text from left to right. Every call returns false where what it looks for is not
// there; the scan is then over.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  bool header(SafetensorsHeader& header) {
    const auto member = [&](std::string_view name) {
      if (name == "__metadata__") {
        return !std::exchange(has_metadata_, true) && metadata(header.metadata);
      }
      SafetensorsEntry& entry = header.entries.emplace_back();
      entry.name = name;
      return info(entry);
    };
    if (!object(member)) return false;
    skip_space();
    return at_ == end_;
  }

 private:
  void skip_space() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }

  // The next byte that is no white space, if it is this one.
  bool take(char wanted) {
    skip_space();
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }

  bool text(std::string_view& found) {
    if (!take('"')) return false;
    const char* begin = at_;
    while (at_ != end_ && kPlain[static_cast<unsigned char>(*at_)]) ++at_;
    found = {begin, static_cast<size_t>(at_ - begin)};
    return at_ != end_ && *at_++ == '"';
  }

  bool number(uint64_t& value) {
    skip_space();
    const char* begin = at_;
    value = 0;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9') {
      value = 10 * value + static_cast<uint64_t>(*at_++ - '0');
      if (static_cast<size_t>(at_ - begin) > kMaxDigits) return false;
    }
    return at_ == begin + 1 || (at_ != begin && *begin != '0');
  }

  // Calls `member` with every key; it takes the value.
  template <class Member>
  bool object(const Member& member) {
    if (!take('{')) return false;
    if (take('}')) return true;
    do {
      std::string_view key;
      if (!text(key) || !take(':') || !member(key)) return false;
    } while (take(','));
    return take('}');
  }

  // Fills the front of `numbers`, and says how many there are.
  bool list(std::array<uint64_t, kMaxScannedDimensions>& numbers, size_t& count) {
    count = 0;
    if (!take('[')) return false;
    if (take(']')) return true;
    do {
      if (count == numbers.size() || !number(numbers[count++])) return false;
    } while (take(','));
    return take(']');
  }

  bool metadata(std::map<std::string, std::string>& metadata) {
    return object([&](std::string_view key) {
      std::string_view value;
      return text(value) && metadata.emplace(key, value).second;
    });
  }

  bool info(SafetensorsEntry& entry) {
    bool has_dtype = false;
    bool has_shape = false;
    bool has_offsets = false;
    const auto member = [&](std::string_view key) {
      if (key == "dtype") return !std::exchange(has_dtype, true) && dtype(entry);
      if (key == "shape") return !std::exchange(has_shape, true) && shape(entry);
      if (key == "data_offsets") return !std::exchange(has_offsets, true) && offsets(entry);
      return false;
    };
    return object(member) && has_dtype && has_shape && has_offsets;
  }

  bool dtype(SafetensorsEntry& entry) {
    std::string_view name;
    if (!text(name)) return false;
    const auto known = dtype_of_name(name);
    if (known) entry.dtype = *known;
    return known.has_value();
  }

  bool shape(SafetensorsEntry& entry) {
    std::array<uint64_t, kMaxScannedDimensions> sizes;
    size_t count = 0;
    if (!list(sizes, count)) return false;
    entry.shape.assign(sizes.begin(), sizes.begin() + count);
    return true;
  }

  bool offsets(SafetensorsEntry& entry) {
    return take('[') && number(entry.begin) && take(',') && number(entry.end) && take(']');
  }

  const char* at_;
  const char* end_;
  bool has_metadata_ = false;
};

}  // namespace

bool scan_safetensors_header(std::string_view text, SafetensorsHeader& header) {
  // About what a tensor takes: a file of many does not have to move them again and again.
  constexpr size_t kBytesOfATensor = 80;
  header.entries.reserve(text.size() / kBytesOfATensor);
  return Scanner(text).header(header);
}

}  // namespace accelerate::files
