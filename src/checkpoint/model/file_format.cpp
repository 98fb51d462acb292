#include "checkpoint/model/file_format.h"

#include <array>

#include "accelerate/errors.h"

namespace accelerate::checkpoint {
namespace {

constexpr const char* kSafetensors = ".safetensors";

bool names_archive(const std::filesystem::path& path) {
  constexpr std::array kArchives{".bin", ".pt", ".pth", ".pkl"};
  for (const char* extension : kArchives) {
    if (path.extension() == extension) return true;
  }
  return false;
}

}  // namespace

bool writes_safetensors(const std::filesystem::path& path, const SaveFileOptions& options) {
  const bool named_so = path.extension() == kSafetensors;
  if (!options.safe_serialization) return named_so;
  if (*options.safe_serialization ? names_archive(path) : named_so) {
    throw UsageError(
        {.what =
             *options.safe_serialization
                 ? "the file name is that of a torch archive, but safetensors were asked for"
                 : "the file name is that of a safetensors file, but a torch archive was asked for",
         .where = path.string(),
         .hint = "leave safe_serialization out, or choose another extension"});
  }
  return *options.safe_serialization;
}

void require_archive_name(const std::filesystem::path& path) {
  if (path.extension() != kSafetensors) return;
  throw UsageError(
      {.what = "safetensors files hold named tensors, and this value is something else",
       .where = path.string(),
       .hint = "pass NamedTensors, or choose another extension, such as .bin"});
}

}  // namespace accelerate::checkpoint
