#include "launch/plan/folder_entries.h"

#include <system_error>

namespace accelerate::launch {

std::vector<std::filesystem::path> folder_entries(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> entries;
  std::error_code error;
  // Not a range-for: its ++ throws.
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    entries.push_back(entry->path());
  }
  return entries;
}

}  // namespace accelerate::launch
