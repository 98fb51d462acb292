// A file that is on the disk when its writer says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "files/durable/byte_sink.h"
#include "files/durable/file_record.h"

namespace accelerate::files {

// Whether a file is hashed while it is written. Where nobody records the checksums that is waste.
enum class Checksums { kKept, kNone };

// Writes a new file from its beginning to its end and keeps the checksums of it and of its parts.
// The file is there under its name at once, and removed again unless close() has succeeded: after
// any error nothing is left behind. One thread at a time.
//
// Large writes go to the kernel as they are, without a copy; small ones are collected. The disk
// begins to write while the rest is still coming.
class DurableFile final : public ByteSink {
 public:
  // Creates the file. Throws CheckpointError if the name is not plain or is taken.
  // Under Checksums::kNone the checksums of the record are 0.
  DurableFile(const std::filesystem::path& directory, std::string name,
              Checksums checksums = Checksums::kKept);
  DurableFile(DurableFile&&) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;
  // Removes the file if close() has not succeeded.
  ~DurableFile() override;

  void write(std::span<const std::byte> bytes) override;
  // Throws CheckpointError if the file has a part of that name already.
  void begin_part(std::string_view name) override;
  void end_part() override;
  // Bytes taken so far.
  uint64_t size() const;
  const std::filesystem::path& path() const;

  // Blocks until all bytes are on the disk. Throws CheckpointError if they cannot be; the
  // destructor then removes the file. To be called once, and nothing else after it. The name itself
  // is durable only once the directory is synced, which CheckpointWriter::commit() does.
  FileRecord close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The record, without parts, of a file that somebody else has written into the directory of a
// checkpoint, such as a hook of the user: reads it for its checksum and makes it durable.
FileRecord record_written_file(const std::filesystem::path& directory, const std::string& name);

}  // namespace accelerate::files
