#include "files/pickle/zip_reader.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "accelerate/errors.h"
#include "files/pickle/pickle_text.h"
#include "files/pickle/zip_format.h"

namespace accelerate::files {
namespace {

using zip::number_at;
using Bytes = std::span<const std::byte>;

// Where the directory of the entries lies.
struct Directory {
  uint64_t entries = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
};

class DirectoryReader {
 public:
  DirectoryReader(Bytes file, const std::string& where) : file_(file), where_(where) {}

  std::vector<ZipEntry> read() {
    const Directory directory = find_directory();
    // Checked against the file before anything is reserved by it.
    if (directory.offset > file_.size() || directory.size > file_.size() - directory.offset ||
        directory.entries > directory.size / zip::kCentralHeaderBytes) {
      refuse("its directory does not lie inside the file");
    }
    std::vector<ZipEntry> entries;
    entries.reserve(directory.entries);
    rest_ = file_.subspan(directory.offset, directory.size);
    for (uint64_t i = 0; i < directory.entries; ++i) entries.push_back(take_entry());
    if (!rest_.empty()) refuse("its directory holds more than its entries");
    for (ZipEntry& entry : entries) place_data(entry, directory.offset);
    check_apart(entries);
    return entries;
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw CheckpointError({.what = "this archive of torch.save cannot be read: " + what,
                           .where = where_,
                           .hint = "the file is damaged or was not written completely: use another "
                                   "copy of it"});
  }

 private:
  Directory find_directory() const {
    // torch writes no comment: the end record is the end of the file.
    if (file_.size() < zip::kEndBytes ||
        number_at<uint32_t>(file_, file_.size() - zip::kEndBytes) != zip::kEnd) {
      refuse("it does not end like a zip file");
    }
    const Bytes end = file_.last(zip::kEndBytes);
    const Bytes before = file_.first(file_.size() - zip::kEndBytes);
    if (number_at<uint16_t>(end, 20) != 0) refuse("it does not end like a zip file");
    Directory directory{.entries = number_at<uint16_t>(end, 10),
                        .offset = number_at<uint32_t>(end, 16),
                        .size = number_at<uint32_t>(end, 12)};
    const bool on_one_disk = number_at<uint16_t>(end, 4) == 0 && number_at<uint16_t>(end, 6) == 0 &&
                             number_at<uint16_t>(end, 8) == number_at<uint16_t>(end, 10);
    if (!on_one_disk) refuse("it is one of several parts");
    if (before.size() < zip::kZip64LocatorBytes ||
        number_at<uint32_t>(before, before.size() - zip::kZip64LocatorBytes) !=
            zip::kZip64Locator) {
      return directory;
    }
    return read_zip64(before, directory);
  }

  Directory read_zip64(Bytes before, const Directory& narrow) const {
    const uint64_t offset =
        number_at<uint64_t>(before, before.size() - zip::kZip64LocatorBytes + 8);
    const Bytes records = before.first(before.size() - zip::kZip64LocatorBytes);
    if (offset > records.size() || records.size() - offset < zip::kZip64EndBytes ||
        number_at<uint32_t>(records, offset) != zip::kZip64End) {
      refuse("its end record of 64 bits is not where it should be");
    }
    const Bytes end = records.subspan(offset);
    const Directory wide{.entries = number_at<uint64_t>(end, 32),
                         .offset = number_at<uint64_t>(end, 48),
                         .size = number_at<uint64_t>(end, 40)};
    const bool agree = (narrow.entries == zip::kSee64From16 || narrow.entries == wide.entries) &&
                       (narrow.offset == zip::kSee64 || narrow.offset == wide.offset) &&
                       (narrow.size == zip::kSee64 || narrow.size == wide.size);
    if (!agree) refuse("its two end records contradict each other");
    return wide;
  }

  ZipEntry take_entry() {
    if (rest_.size() < zip::kCentralHeaderBytes ||
        number_at<uint32_t>(rest_, 0) != zip::kCentralHeader) {
      refuse("its directory is damaged");
    }
    const Bytes header = rest_.first(zip::kCentralHeaderBytes);
    const size_t name_bytes = number_at<uint16_t>(header, 28);
    const size_t extra_bytes = number_at<uint16_t>(header, 30);
    const size_t comment_bytes = number_at<uint16_t>(header, 32);
    const size_t all = zip::kCentralHeaderBytes + name_bytes + extra_bytes + comment_bytes;
    if (rest_.size() < all) refuse("its directory is damaged");

    ZipEntry entry;
    const Bytes name = rest_.subspan(zip::kCentralHeaderBytes, name_bytes);
    entry.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    entry.crc32 = number_at<uint32_t>(header, 16);
    entry.size = number_at<uint32_t>(header, 24);
    entry.header_offset = number_at<uint32_t>(header, 42);
    uint64_t stored_size = number_at<uint32_t>(header, 20);
    read_zip64_field(rest_.subspan(zip::kCentralHeaderBytes + name_bytes, extra_bytes), entry,
                     stored_size);

    const uint16_t flags = number_at<uint16_t>(header, 8);
    if ((flags & ~(zip::kSizesFollow | zip::kUtf8Names)) != 0) {
      refuse("its entry '" + shown(entry.name) + "' is encrypted or of an unknown kind");
    }
    if (number_at<uint16_t>(header, 10) != zip::kStored || stored_size != entry.size) {
      refuse("its entry '" + shown(entry.name) +
             "' is compressed, as in TorchScript modules and never by torch.save");
    }
    rest_ = rest_.subspan(all);
    return entry;
  }

  // The extra field holds, in this order, those of the three numbers that do not fit into 32 bits.
  void read_zip64_field(Bytes extra, ZipEntry& entry, uint64_t& stored_size) const {
    while (extra.size() >= 4) {
      const uint16_t id = number_at<uint16_t>(extra, 0);
      const size_t bytes = number_at<uint16_t>(extra, 2);
      if (bytes > extra.size() - 4) refuse("its entry '" + shown(entry.name) + "' is damaged");
      Bytes field = extra.subspan(4, bytes);
      extra = extra.subspan(4 + bytes);
      if (id != zip::kZip64Field) continue;
      for (uint64_t* number : {&entry.size, &stored_size, &entry.header_offset}) {
        if (*number != zip::kSee64) continue;
        if (field.size() < sizeof(uint64_t))
          refuse("its entry '" + shown(entry.name) + "' is damaged");
        *number = number_at<uint64_t>(field, 0);
        field = field.subspan(sizeof(uint64_t));
      }
    }
  }

  // The data begins behind the local header, which says for itself how long it is.
  void place_data(ZipEntry& entry, uint64_t directory_offset) const {
    const std::string subject = "its entry '" + shown(entry.name) + "' ";
    const Bytes area = file_.first(directory_offset);
    if (entry.header_offset > area.size() ||
        area.size() - entry.header_offset < zip::kLocalHeaderBytes ||
        number_at<uint32_t>(area, entry.header_offset) != zip::kLocalHeader) {
      refuse(subject + "is not where the directory says");
    }
    const Bytes header = area.subspan(entry.header_offset);
    const size_t name_bytes = number_at<uint16_t>(header, 26);
    const size_t before_data =
        zip::kLocalHeaderBytes + name_bytes + number_at<uint16_t>(header, 28);
    if (header.size() < before_data || header.size() - before_data < entry.size) {
      refuse(subject + "does not lie inside the file");
    }
    const Bytes name = header.subspan(zip::kLocalHeaderBytes, name_bytes);
    const bool same_name =
        std::string_view(reinterpret_cast<const char*>(name.data()), name.size()) == entry.name;
    if (!same_name || number_at<uint16_t>(header, 8) != zip::kStored) {
      refuse(subject + "contradicts the directory");
    }
    entry.offset = entry.header_offset + before_data;
  }

  void check_apart(const std::vector<ZipEntry>& entries) const {
    std::vector<const ZipEntry*> sorted;
    sorted.reserve(entries.size());
    for (const ZipEntry& entry : entries) sorted.push_back(&entry);
    std::ranges::sort(sorted, {}, &ZipEntry::header_offset);
    for (size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i - 1]->offset + sorted[i - 1]->size > sorted[i]->header_offset) {
        refuse("its entries '" + shown(sorted[i - 1]->name) + "' and '" + shown(sorted[i]->name) +
               "' overlap");
      }
    }
  }

  Bytes file_;
  const std::string& where_;
  Bytes rest_;  // of the directory
};

uint32_t crc32_of(Bytes bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

}  // namespace

ZipReader::ZipReader(std::span<const std::byte> file, std::string where)
    : file_(file), where_(std::move(where)) {
  DirectoryReader reader(file_, where_);
  entries_ = reader.read();
  by_name_.reserve(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (!by_name_.emplace(entries_[i].name, i).second) {
      reader.refuse("two of its entries are named '" + shown(entries_[i].name) + "'");
    }
  }
  has_checksums_ =
      std::ranges::any_of(entries_, [](const ZipEntry& entry) { return entry.crc32 != 0; });
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

void ZipReader::check_crc(const ZipEntry& entry) const {
  if (!has_checksums_ || crc32_of(bytes(entry)) == entry.crc32) return;
  throw CheckpointError({.what = "the entry '" + shown(entry.name) +
                                 "' is damaged: its CRC-32 is not the recorded one",
                         .where = where_,
                         .hint = "use another copy of the file"});
}

}  // namespace accelerate::files
