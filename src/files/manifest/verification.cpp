#include "files/manifest/verification.h"

#include <fcntl.h>

#include <algorithm>
#include <optional>

#include "accelerate/errors.h"
#include "files/durable/checksum.h"
#include "files/durable/system_calls.h"
#include "files/manifest/checkpoint_directory.h"
#include "files/manifest/manifest_file.h"

namespace accelerate::files {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

std::string bytes_text(uint64_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

// The sizes are those of the file: which tensor is the first without all of its bytes says nothing
// about them.
Finding size_finding(const FileRecord& record, uint64_t bytes) {
  return {.file = record.name,
          .what = "it has " + bytes_text(bytes) + ", the manifest says " +
                  std::to_string(record.bytes)};
}

// Takes the bytes of a file in order and keeps apart those of each part.
class PartChecksums {
 public:
  explicit PartChecksums(const std::vector<PartRecord>& parts) : parts_(parts) { end_parts(); }

  void update(std::span<const std::byte> bytes) {
    while (!bytes.empty() && next_ < parts_.size()) {
      const PartRecord& part = parts_[next_];
      if (position_ < part.offset) {
        bytes = skip(bytes, part.offset - position_);
        continue;
      }
      const uint64_t rest = part.offset + part.bytes - position_;
      const auto mine = bytes.first(std::min<uint64_t>(rest, bytes.size()));
      checksum_.update(mine);
      bytes = skip(bytes, mine.size());
      end_parts();
    }
    position_ += bytes.size();
  }

  // The parts whose bytes do not match, once all bytes were taken.
  const std::vector<const PartRecord*>& damaged() const { return damaged_; }

 private:
  std::span<const std::byte> skip(std::span<const std::byte> bytes, uint64_t count) {
    count = std::min<uint64_t>(count, bytes.size());
    position_ += count;
    return bytes.subspan(count);
  }

  // Ends the parts that end here: the one that was read, and empty ones after it.
  void end_parts() {
    while (next_ < parts_.size() && position_ == parts_[next_].offset + parts_[next_].bytes) {
      if (checksum_.digest() != parts_[next_].checksum) damaged_.push_back(&parts_[next_]);
      checksum_.restart();
      ++next_;
    }
  }

  const std::vector<PartRecord>& parts_;
  std::vector<const PartRecord*> damaged_;
  Checksum checksum_;
  size_t next_ = 0;
  uint64_t position_ = 0;
};

void verify_bytes(const UniqueFd& file, const std::filesystem::path& path, const FileRecord& record,
                  std::vector<Finding>& findings) {
  posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  Checksum whole;
  PartChecksums parts(record.parts);
  std::vector<std::byte> buffer(kReadBytes);
  uint64_t bytes = 0;
  for (;;) {
    const size_t count = read_some(file, buffer, path);
    if (count == 0) break;
    const auto read = std::span<const std::byte>(buffer).first(count);
    whole.update(read);
    parts.update(read);
    bytes += count;
  }
  if (bytes != record.bytes) {
    findings.push_back(size_finding(record, bytes));
    return;
  }
  const std::string problem = "its bytes do not match the checksum";
  for (const PartRecord* part : parts.damaged()) {
    findings.push_back({.file = record.name, .tensor = part->name, .what = problem});
  }
  if (parts.damaged().empty() && whole.digest() != record.checksum) {
    findings.push_back({.file = record.name, .what = problem});
  }
}

void verify_file(const UniqueFd& directory, const std::filesystem::path& path,
                 const FileRecord& record, const VerifyOptions& options,
                 std::vector<Finding>& findings) {
  const OpenedFile file = open_inside(directory, record.name, path);
  if (file.bytes != record.bytes) {
    findings.push_back(size_finding(record, file.bytes));
    return;
  }
  if (options.data_checksums) {
    verify_bytes(file.descriptor, path / record.name, record, findings);
  }
}

}  // namespace

std::string Finding::text() const {
  return file + (tensor.empty() ? "" : ", tensor " + tensor) + ": " + what;
}

std::vector<Finding> verify_files(const UniqueFd& directory, const std::filesystem::path& path,
                                  const Manifest& manifest, const VerifyOptions& options) {
  std::vector<Finding> findings;
  for (const FileRecord& record : manifest.files) {
    try {
      verify_file(directory, path, record, options, findings);
    } catch (const CheckpointError& error) {  // it is missing, a link, unreadable
      findings.push_back({.file = record.name, .what = error.message()});
    }
  }
  return findings;
}

Verification verify_checkpoint(const std::filesystem::path& directory,
                               const VerifyOptions& options) {
  const std::filesystem::path path = find_checkpoint(directory);
  const UniqueFd opened = open_directory(path);
  Verification result;
  try {
    result.manifest = read_manifest(opened, path);
  } catch (const CheckpointError& error) {
    result.findings = {{.file = std::string(kManifestName), .what = error.message()}};
    return result;
  }
  result.findings = verify_files(opened, path, *result.manifest, options);
  return result;
}

std::vector<Finding> verify(const std::filesystem::path& directory, const VerifyOptions& options) {
  return verify_checkpoint(directory, options).findings;
}

}  // namespace accelerate::files
