// Archives as strings of bytes, for tests of formats.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "files/durable/byte_sink.h"
#include "files/pickle/zip_format.h"
#include "files/pickle/zip_writer.h"

namespace accelerate::test {

class StringSink final : public files::ByteSink {
 public:
  void write(std::span<const std::byte> bytes) override {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  std::string text;
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The little-endian bytes of a number.
template <class Number>
std::string number_bytes(Number number) {
  std::string bytes;
  files::zip::append_number(bytes, number);
  return bytes;
}

// `text` with the bytes at `offset` replaced.
inline std::string patched(std::string text, size_t offset, std::string_view bytes) {
  return text.replace(offset, bytes.size(), bytes);
}

// Where the record with that signature begins for the `number`th time, counted from 0.
inline size_t offset_of_record(std::string_view zip, uint32_t signature, int number = 0) {
  size_t offset = zip.find(number_bytes(signature));
  for (; number > 0; --number) offset = zip.find(number_bytes(signature), offset + 1);
  return offset;
}

// An archive of torch.save around a pickle, with one storage "0" of these bytes.
inline std::string archive_of(std::string_view pickle, std::string_view storage = "") {
  StringSink sink;
  files::ZipWriter zip(sink);
  zip.add_entry("archive/data.pkl", pickle);
  zip.add_entry("archive/byteorder", "little");
  zip.add_entry("archive/data/0", storage);
  zip.add_entry("archive/version", "3\n");
  zip.finish();
  return sink.text;
}

}  // namespace accelerate::test
