#include "files/durable/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "files/durable/checksum.h"
#include "files/durable/system_calls.h"

namespace accelerate::files {
namespace {

// What is hashed, then written, at a time: small enough to be in the cache for all three readers
// (two checksums and the kernel's copy), large enough for few system calls. Every write but the
// last ends at a multiple of it: a page that is written in two halves costs a third of the speed.
constexpr size_t kWriteBytes = size_t{256} << 10;
// How much the kernel may have before it is told to start writing: the disk works while the rest is
// hashed and copied, instead of beginning with fsync().
constexpr uint64_t kWritebackBytes = uint64_t{8} << 20;

}  // namespace

struct DurableFile::State {
  // Takes some of the bytes, from their beginning, and returns how many.
  size_t take(std::span<const std::byte> bytes) {
    const auto chunk = bytes.first(std::min(bytes.size(), kWriteBytes - collected_bytes));
    if (checksums == Checksums::kKept) {
      file_checksum.update(chunk);
      if (in_part) part_checksum.update(chunk);
    }
    if (chunk.size() == kWriteBytes) {
      put(chunk);
      return chunk.size();
    }
    std::memcpy(collected.data() + collected_bytes, chunk.data(), chunk.size());
    collected_bytes += chunk.size();
    if (collected_bytes == kWriteBytes) flush();
    return chunk.size();
  }

  // Hands what was collected to the kernel.
  void flush() {
    put(std::span(collected).first(collected_bytes));
    collected_bytes = 0;
  }

  void put(std::span<const std::byte> bytes) {
    write_all(file, bytes, path);
    written += bytes.size();
    if (written - started < kWritebackBytes) return;
    // Advice: where it is not followed, fsync() does all of the work.
    sync_file_range(file.get(), static_cast<off_t>(started), static_cast<off_t>(written - started),
                    SYNC_FILE_RANGE_WRITE);
    started = written;
  }

  uint64_t size() const { return written + collected_bytes; }

  void end_part() {
    if (!in_part) return;
    in_part = false;
    PartRecord& part = record.parts.back();
    part.bytes = size() - part.offset;
    if (checksums == Checksums::kNone) return;
    part.checksum = part_checksum.digest();
    part_checksum.restart();
  }

  std::filesystem::path path;
  UniqueFd file;
  Checksums checksums = Checksums::kKept;
  FileRecord record;
  Checksum file_checksum;
  Checksum part_checksum;
  bool in_part = false;              // the last of the record
  std::vector<std::byte> collected;  // its first collected_bytes are in use
  size_t collected_bytes = 0;
  uint64_t written = 0;  // handed to the kernel
  uint64_t started = 0;  // of these, those the disk was told to begin with
  std::set<std::string, std::less<>> part_names;
  bool to_be_removed = false;
};

DurableFile::DurableFile(const std::filesystem::path& directory, std::string name,
                         Checksums checksums)
    : state_(std::make_unique<State>()) {
  state_->checksums = checksums;
  state_->path = directory / name;
  if (!is_plain_name(name)) {
    throw CheckpointError({.what = "a file of a checkpoint cannot be named \"" + name + "\"",
                           .where = directory.string(),
                           .hint = "use letters, digits and - _ . , without a leading dot"});
  }
  state_->record.name = std::move(name);
  state_->collected.resize(kWriteBytes);
  state_->file = create_file(state_->path);
  state_->to_be_removed = true;
}

DurableFile::DurableFile(DurableFile&&) noexcept = default;

DurableFile::~DurableFile() {
  if (state_ && state_->to_be_removed) unlink(state_->path.c_str());
}

void DurableFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) bytes = bytes.subspan(state_->take(bytes));
}

void DurableFile::begin_part(std::string_view name) {
  State& state = *state_;
  if (!state.part_names.emplace(name).second) {
    throw CheckpointError({.what = "two parts of the file are named \"" + std::string(name) + "\"",
                           .where = state.path.string(),
                           .hint = "give each tensor a name of its own"});
  }
  state.end_part();
  state.record.parts.push_back({.name = std::string(name), .offset = state.size()});
  state.in_part = true;
}

void DurableFile::end_part() { state_->end_part(); }

uint64_t DurableFile::size() const { return state_->size(); }

const std::filesystem::path& DurableFile::path() const { return state_->path; }

FileRecord DurableFile::close() {
  State& state = *state_;
  state.end_part();
  state.flush();
  sync_file(state.file, state.path);
  close_file(state.file, state.path);
  state.to_be_removed = false;
  state.record.bytes = state.written;
  if (state.checksums == Checksums::kKept) state.record.checksum = state.file_checksum.digest();
  return std::move(state.record);
}

FileRecord record_written_file(const std::filesystem::path& directory, const std::string& name) {
  const std::filesystem::path path = directory / name;
  const OpenedFile file = open_inside(open_directory(directory), name, directory);
  FileRecord record{.name = name};
  Checksum checksum;
  std::vector<std::byte> buffer(kWriteBytes);
  for (;;) {
    const size_t count = read_some(file.descriptor, buffer, path);
    if (count == 0) break;
    checksum.update(std::span(buffer).first(count));
    record.bytes += count;
  }
  record.checksum = checksum.digest();
  sync_file(file.descriptor, path);
  return record;
}

}  // namespace accelerate::files
