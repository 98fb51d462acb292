// The records of a zip file that this project reads and writes, after APPNOTE.TXT of PKWARE.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace accelerate::files::zip {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDataDescriptor = 0x08074b50;
constexpr uint32_t kCentralHeader = 0x02014b50;
constexpr uint32_t kZip64End = 0x06064b50;
constexpr uint32_t kZip64Locator = 0x07064b50;
constexpr uint32_t kEnd = 0x06054b50;

// Without the name and what follows it.
constexpr size_t kLocalHeaderBytes = 30;
constexpr size_t kCentralHeaderBytes = 46;
constexpr size_t kZip64EndBytes = 56;
constexpr size_t kZip64LocatorBytes = 20;
constexpr size_t kEndBytes = 22;

constexpr uint16_t kSizesFollow = 1U << 3;  // flag: checksum and sizes stand behind the data
constexpr uint16_t kUtf8Names = 1U << 11;   // flag
constexpr uint16_t kStored = 0;             // method
constexpr uint16_t kZip64Field = 0x0001;    // id of the extra field with 64-bit sizes and offset
constexpr uint16_t kPaddingField = 0x4246;  // id of the extra field by which torch aligns data

// A field of 16 or 32 bits that says: the true value is in the zip64 field.
constexpr uint16_t kSee64From16 = 0xffff;
constexpr uint32_t kSee64 = 0xffffffff;

// The little-endian number at `offset`. The caller has checked that the bytes are there.
template <std::unsigned_integral Number>
Number number_at(std::span<const std::byte> bytes, size_t offset) {
  Number number = 0;
  for (size_t i = sizeof(Number); i-- > 0;) {
    number =
        static_cast<Number>(uint64_t{number} << 8U | std::to_integer<uint64_t>(bytes[offset + i]));
  }
  return number;
}

template <std::unsigned_integral Number>
void append_number(std::string& bytes, Number number) {
  for (size_t i = 0; i < sizeof(Number); ++i) {
    bytes.push_back(static_cast<char>(uint64_t{number} >> (8U * i) & 0xffU));
  }
}

}  // namespace accelerate::files::zip
