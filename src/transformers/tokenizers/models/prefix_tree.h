// All tokens that a text begins with.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace accelerate::tokenizers {

// Filled once, then only read, from any thread.
class PrefixTree {
 public:
  struct Key {
    std::string_view text{};
    uint32_t value = 0;
  };
  // Of equal texts the one with the largest value counts; an empty one is never found.
  explicit PrefixTree(std::vector<Key> keys);

  // Calls visit(bytes, value) for each key that `text` begins with, the shortest first.
  template <typename Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (uint32_t i = 0; i < text.size(); ++i) {
      node = child(node, static_cast<unsigned char>(text[i]));
      if (node == 0) return;
      if (nodes_[node].value != kNone) visit(i + 1, nodes_[node].value);
    }
  }

  // The longest key that `text` begins with: its value and, in `bytes`, its length. kNone: none.
  uint32_t longest_prefix(std::string_view text, size_t& bytes) const {
    uint32_t found = kNone;
    for_each_prefix(text, [&](uint32_t size, uint32_t value) {
      bytes = size;
      found = value;
    });
    return found;
  }

  static constexpr uint32_t kNone = 0xffffffff;

 private:
  // The children of a node lie side by side, in the order of their bytes.
  struct Node {
    uint32_t value = kNone;
    uint32_t first_child = 0;
    uint16_t children = 0;
    unsigned char byte = 0;
  };

  // 0: there is none; nothing leads back to the root.
  uint32_t child(uint32_t node, unsigned char byte) const {
    if (node == 0) return roots_[byte];
    const Node& parent = nodes_[node];
    uint32_t low = parent.first_child;
    uint32_t high = low + parent.children;
    while (high - low > 8) {
      const uint32_t middle = (low + high) / 2;
      if (nodes_[middle].byte <= byte) {
        low = middle;
      } else {
        high = middle;
      }
    }
    for (; low < high; ++low) {
      if (nodes_[low].byte == byte) return low;
    }
    return 0;
  }

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> roots_{};
};

}  // namespace accelerate::tokenizers
