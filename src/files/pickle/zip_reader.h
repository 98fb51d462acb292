// Reads zip files whose entries are stored as they are, as torch.save writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace accelerate::files {

struct ZipEntry {
  std::string name{};
  uint64_t header_offset = 0;  // of its local header
  uint64_t offset = 0;         // of its data
  uint64_t size = 0;
  uint32_t crc32 = 0;
};

// The entries of a zip file that lies in memory. Entries that are compressed or encrypted, lie
// outside of the file or over each other, share a name or contradict their own headers are refused,
// all when the object is made: afterwards each entry is known to lie inside the file. The bytes of
// the file must outlive the object. Any thread.
class ZipReader {
 public:
  // `where` names the file in messages. Throws CheckpointError. Cost: reads headers, not data.
  ZipReader(std::span<const std::byte> file, std::string where);

  // In the order of the file's directory.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // nullptr where there is none of that name.
  const ZipEntry* find(std::string_view name) const;
  std::span<const std::byte> bytes(const ZipEntry& entry) const {
    return file_.subspan(entry.offset, entry.size);
  }

  // Reads the data of the entry and throws CheckpointError if its CRC-32 is not the recorded one.
  // Does nothing if the file was written without checksums (torch can be told so): all are 0 then.
  void check_crc(const ZipEntry& entry) const;

 private:
  std::span<const std::byte> file_;
  std::string where_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, size_t> by_name_;
  bool has_checksums_ = false;
};

}  // namespace accelerate::files
