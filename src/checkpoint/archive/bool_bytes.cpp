#include "checkpoint/archive/bool_bytes.h"

#include <algorithm>

#include "accelerate/errors.h"

namespace accelerate::checkpoint {

void check_bools(std::span<const std::byte> bytes, const std::string& subject,
                 const std::string& where) {
  const auto odd = std::ranges::find_if(bytes, [](std::byte byte) { return byte > std::byte{1}; });
  if (odd == bytes.end()) return;
  throw CheckpointError({.what = subject + " of bools holds the byte " +
                                 std::to_string(std::to_integer<int>(*odd)) + " at element " +
                                 std::to_string(odd - bytes.begin()),
                         .where = where,
                         .hint = "save the file again with bools that are 0 or 1"});
}

}  // namespace accelerate::checkpoint
