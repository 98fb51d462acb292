#include "comm/exchange/host_leaves.h"

#include <cstdint>
#include <cstring>
#include <string_view>

#include "accelerate/errors.h"

namespace accelerate::comm {
namespace {

// Takes the next leaf off a message: its length, then its bytes.
std::string_view take_leaf(std::string_view& message) {
  uint64_t size = 0;
  if (message.size() >= sizeof(size)) std::memcpy(&size, message.data(), sizeof(size));
  if (message.size() < sizeof(size) || message.size() - sizeof(size) < size) {
    throw CommError({.what = "a message of another rank ends too early",
                     .where = "an operation on nested values",
                     .hint = "run the same program on all ranks"});
  }
  const std::string_view leaf = message.substr(sizeof(size), size);
  message.remove_prefix(sizeof(size) + size);
  return leaf;
}

}  // namespace

std::string message_of(const std::vector<detail::HostLeaf>& leaves) {
  std::string message;
  for (const detail::HostLeaf& leaf : leaves) {
    const std::string bytes = leaf.bytes();
    const uint64_t size = bytes.size();
    message.append(reinterpret_cast<const char*>(&size), sizeof(size));
    message += bytes;
  }
  return message;
}

void assign_leaves(std::vector<detail::HostLeaf>& leaves,
                   const std::vector<std::string>& messages) {
  std::vector<std::string_view> rest(messages.begin(), messages.end());
  for (detail::HostLeaf& leaf : leaves) {
    std::vector<std::string_view> parts;
    for (std::string_view& message : rest) parts.push_back(take_leaf(message));
    leaf.assign(parts);
  }
}

}  // namespace accelerate::comm
