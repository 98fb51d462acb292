// Where bytes of a file go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace accelerate::files {

// Takes the bytes of one file from its beginning to its end. Whoever writes a format writes to a
// sink and does not know whether the bytes go to a disk, are counted or are compared.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  // Takes all of the bytes before it returns. Throws CheckpointError if it cannot; the sink is then
  // of no further use.
  virtual void write(std::span<const std::byte> bytes) = 0;
  // What follows, up to the next part or the end of the file, is the part of that name: the bytes
  // of one tensor. Sinks that keep a checksum keep one for each part.
  virtual void begin_part(std::string_view /*name*/) {}
  // What follows, up to the next part, belongs to none. Only after begin_part().
  virtual void end_part() {}
};

}  // namespace accelerate::files
