#include "tracking/protobuf.h"

#include <bit>

#include "tracking/little_endian.h"

namespace accelerate::tracking {
namespace {

void append_varint(std::string& bytes, uint64_t value) {
  while (value >= 0x80U) {
    bytes.push_back(static_cast<char>(static_cast<uint8_t>(value) | 0x80U));
    value >>= 7U;
  }
  bytes.push_back(static_cast<char>(static_cast<uint8_t>(value)));
}

}  // namespace

void ProtobufMessage::key(uint32_t field, WireType type) {
  append_varint(bytes_, uint64_t{field} << 3U | static_cast<uint64_t>(type));
}

ProtobufMessage& ProtobufMessage::varint(uint32_t field, uint64_t value) {
  key(field, WireType::kVarint);
  append_varint(bytes_, value);
  return *this;
}

ProtobufMessage& ProtobufMessage::real(uint32_t field, double value) {
  key(field, WireType::kFixed64);
  append_little_endian(bytes_, std::bit_cast<uint64_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::real32(uint32_t field, float value) {
  key(field, WireType::kFixed32);
  append_little_endian(bytes_, std::bit_cast<uint32_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::text(uint32_t field, std::string_view value) {
  key(field, WireType::kBytes);
  append_varint(bytes_, value.size());
  bytes_ += value;
  return *this;
}

ProtobufMessage& ProtobufMessage::packed(uint32_t field, std::span<const double> values) {
  key(field, WireType::kBytes);
  append_varint(bytes_, values.size() * sizeof(double));
  for (const double value : values) append_little_endian(bytes_, std::bit_cast<uint64_t>(value));
  return *this;
}

ProtobufMessage& ProtobufMessage::packed32(uint32_t field, float value) {
  key(field, WireType::kBytes);
  append_varint(bytes_, sizeof(float));
  append_little_endian(bytes_, std::bit_cast<uint32_t>(value));
  return *this;
}

std::optional<uint64_t> ProtobufReader::read_varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    value |= uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80U) == 0) return value;
  }
  return std::nullopt;
}

std::optional<ProtobufField> ProtobufReader::next() {
  if (rest_.empty() || !valid_) return std::nullopt;
  valid_ = false;  // until the field was read
  const std::string_view before = rest_;
  const auto key = read_varint();
  if (!key || *key >> 3U == 0 || *key >> 3U > 0x1fffffffU) return std::nullopt;
  ProtobufField field;
  field.number = static_cast<uint32_t>(*key >> 3U);
  field.type = static_cast<WireType>(*key & 7U);
  switch (field.type) {
    case WireType::kVarint: {
      const auto value = read_varint();
      if (!value) return std::nullopt;
      field.value = *value;
      break;
    }
    case WireType::kFixed64:
      if (rest_.size() < 8) return std::nullopt;
      field.value = read_little_endian<uint64_t>(rest_);
      rest_.remove_prefix(8);
      break;
    case WireType::kFixed32:
      if (rest_.size() < 4) return std::nullopt;
      field.value = read_little_endian<uint32_t>(rest_);
      rest_.remove_prefix(4);
      break;
    case WireType::kBytes: {
      const auto length = read_varint();
      if (!length || *length > rest_.size()) return std::nullopt;
      field.bytes = rest_.substr(0, *length);
      rest_.remove_prefix(*length);
      break;
    }
    default:
      return std::nullopt;
  }
  field.with_key = before.substr(0, before.size() - rest_.size());
  valid_ = true;
  return field;
}

}  // namespace accelerate::tracking
