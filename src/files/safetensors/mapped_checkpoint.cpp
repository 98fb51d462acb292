#include "files/safetensors/mapped_checkpoint.h"

#include "accelerate/errors.h"

namespace accelerate::files {

std::shared_ptr<const MappedFile> map_checkpoint_file(const std::filesystem::path& path,
                                                      const std::string& kind) {
  try {
    return std::make_shared<const MappedFile>(path, kind, MappedFile::Writes::kPrivate);
  } catch (const DataError& error) {
    // The same file, named by somebody who asked for a checkpoint and not for data.
    throw CheckpointError({.what = error.message(), .where = error.where(), .hint = error.hint()});
  }
}

}  // namespace accelerate::files
