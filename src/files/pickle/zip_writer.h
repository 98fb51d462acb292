// Writes zip files as torch.save does: entries stored as they are, their data aligned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/durable/byte_sink.h"

namespace accelerate::files {

// Hands a zip file to a sink from its first byte to its last. Data begins at multiples of 64 bytes,
// so that a mapping of the file can be used as it is. One thread at a time; after an error of the
// sink the object is of no further use.
class ZipWriter {
 public:
  static constexpr uint64_t kAlignment = 64;

  explicit ZipWriter(ByteSink& sink) : sink_(sink) {}

  // One entry: begin_entry() with the size that all following write() calls sum up to, then
  // end_entry(). Names must differ.
  void begin_entry(std::string name, uint64_t size);
  void write(std::span<const std::byte> bytes);
  void end_entry();
  void add_entry(std::string name, std::string_view bytes);

  // 40 digits that depend on names and contents of the entries so far: what torch keeps as an id
  // of the file.
  std::string contents_id() const;

  // The directory. To be called once, last.
  void finish();

 private:
  struct Written {
    std::string name;
    uint64_t header_offset;
    uint64_t size;
    uint32_t crc32;
  };

  void put(std::string_view bytes);

  ByteSink& sink_;
  uint64_t position_ = 0;
  uint64_t left_ = 0;  // bytes of the present entry still to come
  std::vector<Written> entries_;
};

}  // namespace accelerate::files
