#include "files/durable/staged_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/random_id.h"
#include "files/durable/system_calls.h"

namespace accelerate::files {
namespace {

constexpr std::string_view kPartialSuffix = ".partial";
constexpr std::string_view kHex = "0123456789abcdef";
constexpr size_t kNameDigits = 16;

std::string partial_name(std::string_view stem) {
  return std::string(stem) + "-" + random_id() + std::string(kPartialSuffix);
}

std::filesystem::path target_folder(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

StagedFile::StagedFile(const std::filesystem::path& path, std::string_view stem) : path_(path) {
  const std::string name = partial_name(stem);
  partial_ = target_folder(path) / name;
  file_.emplace(target_folder(path), name, Checksums::kNone);
}

StagedFile::StagedFile(StagedFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      file_(std::move(other.file_)),
      closed_(std::exchange(other.closed_, false)) {}

StagedFile::~StagedFile() {
  // Before close() the file removes itself.
  if (closed_) unlink(partial_.c_str());
}

void StagedFile::close() {
  file_->close();
  file_.reset();
  closed_ = true;
}

void StagedFile::publish() {
  rename_entry(partial_, path_);
  closed_ = false;
}

bool is_partial_file(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem) || !name.ends_with(kPartialSuffix)) return false;
  name.remove_prefix(stem.size());
  name.remove_suffix(std::min(kPartialSuffix.size(), name.size()));
  return name.size() == 1 + kNameDigits && name.front() == '-' &&
         name.find_first_not_of(kHex, 1) == name.npos;
}

}  // namespace accelerate::files
