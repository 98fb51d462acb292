// Messages in the wire format of Protocol Buffers, written field by field. libprotobuf is not
// linked: a second copy of it beside the one inside libtorch ends programs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace accelerate::tracking {

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

class ProtobufMessage {
 public:
  ProtobufMessage& varint(uint32_t field, uint64_t value);
  ProtobufMessage& integer(uint32_t field, int64_t value) {
    return varint(field, static_cast<uint64_t>(value));
  }
  ProtobufMessage& real(uint32_t field, double value);
  ProtobufMessage& real32(uint32_t field, float value);
  ProtobufMessage& text(uint32_t field, std::string_view value);
  ProtobufMessage& message(uint32_t field, const ProtobufMessage& value) {
    return text(field, value.bytes());
  }
  ProtobufMessage& packed(uint32_t field, std::span<const double> values);
  ProtobufMessage& packed32(uint32_t field, float value);
  // A field as it was read, with its key.
  ProtobufMessage& raw(std::string_view field) {
    bytes_ += field;
    return *this;
  }

  const std::string& bytes() const { return bytes_; }
  bool empty() const { return bytes_.empty(); }

 private:
  void key(uint32_t field, WireType type);

  std::string bytes_;
};

// One field of a message.
struct ProtobufField {
  uint32_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t value = 0;         // of a varint or a fixed number
  std::string_view bytes{};   // of kBytes
  std::string_view with_key;  // all of it, as raw() takes it
};

// Reads a message from the front. Stops for good at what is not valid.
class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view bytes) : rest_(bytes) {}
  std::optional<ProtobufField> next();
  // Whether everything that was read was valid.
  bool valid() const { return valid_; }

 private:
  std::optional<uint64_t> read_varint();

  std::string_view rest_;
  bool valid_ = true;
};

}  // namespace accelerate::tracking
