#include "run_record/record_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace accelerate::run_record {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;

}  // namespace

void RecordParser::add(std::string_view bytes) {
  if (damaged_) return;
  bytes_.erase(0, taken_);
  taken_ = 0;
  bytes_ += bytes;
}

std::optional<Record> RecordParser::next() {
  while (!damaged_) {
    const std::string_view rest = std::string_view(bytes_).substr(taken_);
    if (!has_magic_) {
      const size_t known = std::min(rest.size(), kMagic.size());
      damaged_ = rest.substr(0, known) != kMagic.substr(0, known);
      if (damaged_ || known < kMagic.size()) return std::nullopt;
      has_magic_ = true;
      taken_ += kMagic.size();
      position_ += kMagic.size();
      continue;
    }
    if (rest.size() < kFrameBytes) return std::nullopt;
    uint32_t check = 0;
    uint16_t size = 0;
    std::memcpy(&check, rest.data(), sizeof check);
    std::memcpy(&size, rest.data() + 4, sizeof size);
    const auto kind = static_cast<RecordKind>(rest[6]);
    // A file system may show a file longer before its bytes have come: they are read again.
    if (kind == RecordKind{} && check == 0 && size == 0) {
      bytes_.resize(taken_);
      return std::nullopt;
    }
    if (rest.size() < kFrameBytes + size) return std::nullopt;
    const std::string_view payload = rest.substr(kFrameBytes, size);
    damaged_ = checksum(rest.substr(4, 4), payload) != check;
    if (damaged_) return std::nullopt;
    taken_ += kFrameBytes + size;
    position_ += kFrameBytes + size;
    if (auto record = decode(kind, payload)) return record;
    ++skipped_;
  }
  return std::nullopt;
}

std::optional<Record> RecordReader::next() {
  while (true) {
    if (auto record = parser_.next()) return record;
    if (parser_.is_damaged()) return std::nullopt;
    if (!file_) file_ = UniqueFd(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file_) return std::nullopt;
    std::array<char, kReadBytes> buffer;
    const ssize_t count =
        ::pread(file_.get(), buffer.data(), buffer.size(), static_cast<off_t>(parser_.received()));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    const uint64_t before = parser_.received();
    parser_.add({buffer.data(), static_cast<size_t>(count)});
    if (auto record = parser_.next()) return record;
    if (parser_.received() <= before) return std::nullopt;
  }
}

}  // namespace accelerate::run_record
