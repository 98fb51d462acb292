#include "files/pickle/pickle_archive.h"

#include "accelerate/errors.h"
#include "files/pickle/pickle_dtypes.h"
#include "files/pickle/pickle_reader.h"
#include "files/pickle/pickle_text.h"
#include "files/pickle/zip_format.h"

namespace accelerate::files {
namespace {

// Says what the file is if it is none of torch's zip files.
std::span<const std::byte> checked_beginning(std::span<const std::byte> file,
                                             const std::string& where) {
  if (file.size() >= 4 && zip::number_at<uint32_t>(file, 0) == zip::kLocalHeader) return file;
  constexpr std::byte kPickle{0x80};
  if (!file.empty() && file[0] == kPickle) {
    throw CheckpointError(
        {.what = "the file is a bare pickle, as torch.save wrote before torch 1.6, and is not read",
         .where = where,
         .hint = "load it in Python and save it again: torch.save writes the zip format"});
  }
  throw CheckpointError(
      {.what = "the file was not written by torch.save: it does not begin like a zip file",
       .where = where,
       .hint = "check how it was written"});
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// torch: the folder of the first entry.
std::string archive_folder(const ZipReader& zip) {
  if (zip.entries().empty()) return {};
  const std::string& first = zip.entries().front().name;
  return first.substr(0, first.find('/') + 1);
}

}  // namespace

PickleArchive::PickleArchive(std::span<const std::byte> file, const std::string& where,
                             const PickleArchiveOptions& options)
    : where_(where), zip_(checked_beginning(file, where), where), folder_(archive_folder(zip_)) {
  check_kind();
  for (const ZipEntry& entry : zip_.entries()) {
    if (options.check_data || !entry.name.starts_with(folder_ + "data/")) zip_.check_crc(entry);
  }
  check_byte_order();
  document_ = read_pickle(zip_.bytes(entry("data.pkl")), where_, options.classes);
  check_storages();
}

const ZipEntry& PickleArchive::entry(const std::string& name) const {
  if (const ZipEntry* found = zip_.find(folder_ + name)) return *found;
  throw CheckpointError({.what = "the archive has no entry '" + shown(folder_ + name) + "'",
                         .where = where_,
                         .hint = "the file was not written by torch.save, or is damaged"});
}

void PickleArchive::check_kind() const {
  if (zip_.find(folder_ + "constants.pkl") == nullptr) return;
  throw CheckpointError({.what = "the archive is a TorchScript module, not a file of torch.save",
                         .where = where_,
                         .hint = "load it with torch::jit::load"});
}

void PickleArchive::check_byte_order() const {
  const ZipEntry* order = zip_.find(folder_ + "byteorder");  // files before torch 2.1 have none
  if (order == nullptr || text_of(zip_.bytes(*order)) == "little") return;
  throw CheckpointError({.what = "the archive was written on a big-endian machine",
                         .where = where_,
                         .hint = "load it in Python and save it again on a little-endian one"});
}

void PickleArchive::check_storages() const {
  for (const PickleValue& value : document_.values) {
    const auto* box = std::get_if<PickleBox<PickleStorage>>(&value);
    if (box == nullptr) continue;
    const PickleStorage& storage = **box;
    const ZipEntry& data = entry("data/" + storage.key);
    uint64_t needed = 0;
    const uint64_t element_bytes = find_pickle_dtype(storage.dtype)->bytes;
    if (__builtin_mul_overflow(storage.elements, element_bytes, &needed) || needed != data.size) {
      throw CheckpointError({.what = "the entry '" + shown(data.name) + "' has " +
                                     std::to_string(data.size) + " bytes, its storage has " +
                                     std::to_string(storage.elements) + " elements of " +
                                     std::string(storage.dtype),
                             .where = where_,
                             .hint = "use another copy of the file"});
    }
  }
}

std::span<const std::byte> PickleArchive::bytes(const PickleStorage& storage) const {
  return zip_.bytes(entry("data/" + storage.key));
}

void PickleArchive::check(const PickleStorage& storage) const {
  zip_.check_crc(entry("data/" + storage.key));
}

}  // namespace accelerate::files
