#include "tracking/wandb_log.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>

#include "tracking/little_endian.h"

namespace accelerate::tracking {
namespace {

constexpr size_t kBlock = 32768;
constexpr size_t kRecordHead = 7;  // checksum (4), length (2), kind (1)

enum class PieceKind : uint8_t { kFull = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

uint32_t piece_checksum(uint8_t kind, std::string_view data) {
  const Bytef kind_byte = kind;
  const uLong seed = crc32(0, &kind_byte, 1);
  return static_cast<uint32_t>(
      crc32(seed, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
}

}  // namespace

std::string_view wandb_file_begin() {
  using namespace std::string_view_literals;
  return ":W&B\xe1\xbe\x00"sv;
}

void append_wandb_record(std::string& bytes, size_t offset, std::string_view record) {
  bool is_first = true;
  while (true) {
    const size_t at = offset + bytes.size();
    size_t left = kBlock - at % kBlock;
    if (left < kRecordHead) {
      bytes.append(left, '\0');
      left = kBlock;
    }
    const std::string_view data = record.substr(0, std::min(record.size(), left - kRecordHead));
    record.remove_prefix(data.size());
    const bool is_last = record.empty();
    const auto kind =
        static_cast<uint8_t>(is_first ? (is_last ? PieceKind::kFull : PieceKind::kFirst)
                                      : (is_last ? PieceKind::kLast : PieceKind::kMiddle));
    append_little_endian(bytes, piece_checksum(kind, data));
    append_little_endian(bytes, static_cast<uint16_t>(data.size()));
    bytes.push_back(static_cast<char>(kind));
    bytes += data;
    if (is_last) return;
    is_first = false;
  }
}

std::vector<std::string> parse_wandb_records(std::string_view file) {
  std::vector<std::string> records;
  if (!file.starts_with(wandb_file_begin())) return records;
  std::string record;
  size_t at = wandb_file_begin().size();
  while (at < file.size()) {
    const size_t left = kBlock - at % kBlock;
    if (left < kRecordHead) {
      at += left;
      continue;
    }
    if (file.size() - at < kRecordHead) break;
    const auto checksum = read_little_endian<uint32_t>(file.substr(at));
    const auto length = read_little_endian<uint16_t>(file.substr(at + 4));
    const auto kind = static_cast<uint8_t>(file[at + 6]);
    if (file.size() - at - kRecordHead < length || kRecordHead + length > left) break;
    const std::string_view data = file.substr(at + kRecordHead, length);
    if (kind < 1 || kind > 4 || piece_checksum(kind, data) != checksum) break;
    at += kRecordHead + length;
    const auto piece = static_cast<PieceKind>(kind);
    if (piece == PieceKind::kFull || piece == PieceKind::kFirst) record.clear();
    record += data;
    if (piece == PieceKind::kFull || piece == PieceKind::kLast) records.push_back(record);
  }
  return records;
}

}  // namespace accelerate::tracking
