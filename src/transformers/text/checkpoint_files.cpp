#include "transformers/text/checkpoint_files.h"

#include <algorithm>
#include <system_error>

#include "accelerate/errors.h"
#include "files/durable/mapped_file.h"

namespace accelerate::transformers {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& what, const fs::path& file) {
  throw DataError({.what = what, .where = file.string()});
}

fs::path canonical(const fs::path& path, const fs::path& file) {
  std::error_code error;
  fs::path result = fs::canonical(path, error);
  if (error) refuse("the file of a tokenizer cannot be read: " + error.message(), file);
  return result;
}

// The files of a snapshot are links to blobs beside it.
fs::path innermost_root(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  const bool snapshot = snapshots.filename() == "snapshots" &&
                        snapshots.parent_path().filename().string().starts_with("models--");
  return snapshot ? snapshots.parent_path() : folder;
}

void check_place(const fs::path& folder, const fs::path& file) {
  const fs::path root = innermost_root(canonical(folder, file));
  const fs::path target = canonical(file, file);
  if (std::mismatch(root.begin(), root.end(), target.begin(), target.end()).first == root.end()) {
    return;
  }
  refuse("a link leads out of the folder, to " + target.string(), file);
}

}  // namespace

std::optional<std::string> read_checkpoint_file(const fs::path& folder, const char* name,
                                                size_t most_bytes) {
  const fs::path file = folder / name;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(file, error);
  if (status.type() == fs::file_type::not_found) return std::nullopt;
  if (error) refuse("the file of a tokenizer cannot be read: " + error.message(), file);
  check_place(folder, file);
  if (fs::is_regular_file(file, error) && fs::file_size(file, error) == 0 && !error) return "";
  const MappedFile mapped(file, "the file of a tokenizer");
  if (mapped.size() > most_bytes) {
    refuse("the file has " + std::to_string(mapped.size()) + " bytes; it should have at most " +
               std::to_string(most_bytes),
           file);
  }
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes of a text
  return std::string(reinterpret_cast<const char*>(mapped.data()), mapped.size());
}

}  // namespace accelerate::transformers
