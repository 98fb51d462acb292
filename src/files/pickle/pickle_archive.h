// A file of torch.save, opened and checked, with its tensors still in the bytes of the file.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "files/pickle/pickle_document.h"
#include "files/pickle/zip_reader.h"

namespace accelerate::files {

struct PickleArchiveOptions {
  // Known beside those of torch.save, as for read_pickle().
  std::span<const PickleClass> classes{};
  // false: the memory of tensors is compared with its CRC-32 by check() alone. What nobody wants is
  // not read then.
  bool check_data = true;
};

// The zip file, the pickle in it and where the memory of its tensors lies. Every storage of the
// document has an entry of exactly its size. The bytes of the file must outlive the object. Any
// thread.
class PickleArchive {
 public:
  // `where` names the file in messages. Throws CheckpointError for anything that is not a complete,
  // undamaged file of torch.save with plain values. Cost: reads all entries once for their CRC-32.
  PickleArchive(std::span<const std::byte> file, const std::string& where,
                const PickleArchiveOptions& options = {});

  const PickleDocument& document() const { return document_; }
  std::span<const std::byte> bytes(const PickleStorage& storage) const;
  // Reads the bytes of the storage; throws CheckpointError if their CRC-32 is not the recorded one.
  void check(const PickleStorage& storage) const;

 private:
  const ZipEntry& entry(const std::string& name) const;
  void check_kind() const;
  void check_byte_order() const;
  void check_storages() const;

  std::string where_;
  ZipReader zip_;
  std::string folder_;  // with its slash
  PickleDocument document_;
};

}  // namespace accelerate::files
