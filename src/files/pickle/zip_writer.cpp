#include "files/pickle/zip_writer.h"

#include <zlib.h>

#include <array>
#include <cstdio>
#include <utility>

#include "accelerate/errors.h"
#include "base/fnv1a.h"
#include "files/pickle/zip_format.h"

namespace accelerate::files {
namespace {

using zip::append_number;

constexpr uint64_t kFirstWide = zip::kSee64;  // this number and larger ones need 64 bits
constexpr uint16_t kFlags = zip::kSizesFollow | zip::kUtf8Names;

bool is_wide(uint64_t number) { return number >= kFirstWide; }

uint32_t narrow(uint64_t number) {
  return is_wide(number) ? zip::kSee64 : static_cast<uint32_t>(number);
}

// The extra field for whatever does not fit into 32 bits; empty if all does.
std::string zip64_field(uint64_t size, uint64_t header_offset) {
  std::string numbers;
  if (is_wide(size)) {
    append_number(numbers, size);
    append_number(numbers, size);
  }
  if (is_wide(header_offset)) append_number(numbers, header_offset);
  if (numbers.empty()) return {};
  std::string field;
  append_number(field, zip::kZip64Field);
  append_number(field, static_cast<uint16_t>(numbers.size()));
  return field + numbers;
}

// An extra field after which the data is aligned.
std::string padding_field(uint64_t position) {
  const uint64_t end = position + 4;
  const uint64_t fill =
      (ZipWriter::kAlignment - end % ZipWriter::kAlignment) % ZipWriter::kAlignment;
  std::string field;
  append_number(field, zip::kPaddingField);
  append_number(field, static_cast<uint16_t>(fill));
  return field + std::string(fill, 'Z');
}

std::string twenty_digits(uint64_t number) {
  std::array<char, 21> text{};
  std::snprintf(text.data(), text.size(), "%020llu", static_cast<unsigned long long>(number));
  return text.data();
}

constexpr uint64_t mixed(uint64_t hash, uint64_t value) { return (hash ^ value) * Fnv1a::kPrime; }

}  // namespace

void ZipWriter::put(std::string_view bytes) {
  sink_.write(std::as_bytes(std::span(bytes.data(), bytes.size())));
  position_ += bytes.size();
}

void ZipWriter::begin_entry(std::string name, uint64_t size) {
  std::string header;
  append_number(header, zip::kLocalHeader);
  append_number(header, uint16_t{0});  // version needed
  append_number(header, kFlags);
  append_number(header, zip::kStored);
  append_number(header, uint32_t{0});  // time and date: the same value gives the same bytes
  append_number(header, uint32_t{0});  // the checksum and the two sizes follow the data
  append_number(header, uint64_t{0});
  append_number(header, static_cast<uint16_t>(name.size()));
  std::string extra = zip64_field(size, position_);
  extra += padding_field(position_ + zip::kLocalHeaderBytes + name.size() + extra.size());
  append_number(header, static_cast<uint16_t>(extra.size()));
  entries_.push_back(
      {.name = std::move(name), .header_offset = position_, .size = size, .crc32 = 0});
  left_ = size;
  put(header + entries_.back().name + extra);
}

void ZipWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > left_) {
    throw CheckpointError({.what = "more bytes than announced for the entry '" +
                                   entries_.back().name + "' of an archive"});
  }
  Written& entry = entries_.back();
  entry.crc32 = static_cast<uint32_t>(
      crc32_z(entry.crc32, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  sink_.write(bytes);
  position_ += bytes.size();
  left_ -= bytes.size();
}

void ZipWriter::end_entry() {
  const Written& entry = entries_.back();
  if (left_ != 0) {
    throw CheckpointError(
        {.what = "fewer bytes than announced for the entry '" + entry.name + "' of an archive"});
  }
  std::string descriptor;
  append_number(descriptor, zip::kDataDescriptor);
  append_number(descriptor, entry.crc32);
  // As wide as the header's zip64 field says, which is there for a wide offset too.
  if (is_wide(entry.size) || is_wide(entry.header_offset)) {
    append_number(descriptor, entry.size);
    append_number(descriptor, entry.size);
  } else {
    append_number(descriptor, static_cast<uint32_t>(entry.size));
    append_number(descriptor, static_cast<uint32_t>(entry.size));
  }
  put(descriptor);
}

void ZipWriter::add_entry(std::string name, std::string_view bytes) {
  begin_entry(std::move(name), bytes.size());
  write(std::as_bytes(std::span(bytes.data(), bytes.size())));
  end_entry();
}

std::string ZipWriter::contents_id() const {
  Fnv1a names;
  uint64_t contents = Fnv1a::kBasis;
  for (const Written& entry : entries_) {
    names.add(entry.name);
    contents = mixed(mixed(contents, entry.crc32), entry.size);
  }
  return twenty_digits(names.value()) + twenty_digits(contents);
}

void ZipWriter::finish() {
  const uint64_t directory_offset = position_;
  for (const Written& entry : entries_) {
    const std::string extra = zip64_field(entry.size, entry.header_offset);
    std::string header;
    append_number(header, zip::kCentralHeader);
    append_number(header, uint32_t{0});  // versions: made by, needed
    append_number(header, kFlags);
    append_number(header, zip::kStored);
    append_number(header, uint32_t{0});  // time and date
    append_number(header, entry.crc32);
    append_number(header, narrow(entry.size));
    append_number(header, narrow(entry.size));
    append_number(header, static_cast<uint16_t>(entry.name.size()));
    append_number(header, static_cast<uint16_t>(extra.size()));
    append_number(header,
                  uint64_t{0});  // comment, disk, attributes: 2 + 2 + 2 + 4 bytes, with the next
    append_number(header, uint16_t{0});
    append_number(header, narrow(entry.header_offset));
    put(header + entry.name + extra);
  }
  const uint64_t directory_size = position_ - directory_offset;
  const uint64_t zip64_offset = position_;
  std::string end;
  append_number(end, zip::kZip64End);
  append_number(end, uint64_t{zip::kZip64EndBytes - 12});  // what follows this number
  append_number(end, uint16_t{0x031e});                    // made by and needed, as torch writes
  append_number(end, uint16_t{45});
  append_number(end, uint64_t{0});  // disks
  append_number(end, uint64_t{entries_.size()});
  append_number(end, uint64_t{entries_.size()});
  append_number(end, directory_size);
  append_number(end, directory_offset);
  append_number(end, zip::kZip64Locator);
  append_number(end, uint32_t{0});
  append_number(end, zip64_offset);
  append_number(end, uint32_t{1});
  append_number(end, zip::kEnd);
  append_number(end, uint32_t{0});
  const auto count = static_cast<uint16_t>(entries_.size() >= zip::kSee64From16 ? zip::kSee64From16
                                                                                : entries_.size());
  append_number(end, count);
  append_number(end, count);
  append_number(end, narrow(directory_size));
  append_number(end, narrow(directory_offset));
  append_number(end, uint16_t{0});
  put(end);
}

}  // namespace accelerate::files
