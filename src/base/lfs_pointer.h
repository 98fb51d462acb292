// Files that git has fetched without git-lfs: a few lines of text in place of what they should
// hold.
#pragma once

#include <string_view>

namespace accelerate {

// Whether a file that begins like this is one.
inline bool is_lfs_pointer(std::string_view beginning) {
  return beginning.starts_with("version https://git-lfs.github.com/spec/");
}

// For messages.
inline constexpr const char* kLfsPointer =
    "the file is a pointer of git-lfs: what it should hold has not been fetched";
inline constexpr const char* kLfsHint = "run `git lfs pull` in its folder";

}  // namespace accelerate
