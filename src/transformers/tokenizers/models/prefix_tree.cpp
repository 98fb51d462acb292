#include "transformers/tokenizers/models/prefix_tree.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace accelerate::tokenizers {

PrefixTree::PrefixTree(std::vector<Key> keys) {
  std::ranges::sort(keys, {}, [](const Key& key) { return std::pair(key.text, key.value); });
  // All keys of a range begin with the same `depth` bytes, which lead to the node.
  struct Range {
    uint32_t node = 0;
    size_t begin = 0;
    size_t end = 0;
    size_t depth = 0;
  };
  nodes_.emplace_back();
  std::deque<Range> open{{0, 0, keys.size(), 0}};
  while (!open.empty()) {
    Range range = open.front();
    open.pop_front();
    // A key that ends here sorts before those that go on.
    while (range.begin < range.end && keys[range.begin].text.size() == range.depth) {
      if (range.depth > 0) nodes_[range.node].value = keys[range.begin].value;
      ++range.begin;
    }
    const auto first_child = static_cast<uint32_t>(nodes_.size());
    nodes_[range.node].first_child = first_child;
    while (range.begin < range.end) {
      const char byte = keys[range.begin].text[range.depth];
      size_t end = range.begin;
      while (end < range.end && keys[end].text[range.depth] == byte) ++end;
      const auto child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
      open.push_back({child, range.begin, end, range.depth + 1});
      range.begin = end;
    }
    nodes_[range.node].children = static_cast<uint16_t>(nodes_.size() - first_child);
    if (range.node != 0) continue;
    for (uint32_t i = first_child; i < nodes_.size(); ++i) roots_[nodes_[i].byte] = i;
  }
}

}  // namespace accelerate::tokenizers
