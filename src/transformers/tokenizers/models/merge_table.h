// The merges of a BPE model: which two tokens become which, and how early.
#pragma once

#include <cstdint>
#include <vector>

namespace accelerate::tokenizers {

struct Merge {
  uint32_t rank = 0;  // the lower, the earlier
  uint32_t id = 0;    // what the two become
};

// Filled once, then only read, from any thread.
class MergeTable {
 public:
  // Room for `count` merges.
  explicit MergeTable(size_t count) {
    size_t slots = 16;
    while (slots < count * 2) slots *= 2;
    slots_.resize(slots);
  }

  // A later merge of the same two replaces the one before. Not more than the table has room for.
  void add(uint32_t left, uint32_t right, Merge merge) {
    const uint64_t key = key_of(left, right);
    slots_[slot_of(key)] = {key, merge};
  }

  // nullptr: the two stay as they are.
  const Merge* find(uint32_t left, uint32_t right) const {
    const Slot& slot = slots_[slot_of(key_of(left, right))];
    return slot.key == kFree ? nullptr : &slot.merge;
  }

 private:
  // The last id merged with itself: no vocabulary is that large.
  static constexpr uint64_t kFree = UINT64_MAX;
  struct Slot {
    uint64_t key = kFree;
    Merge merge{};
  };

  static uint64_t key_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

  size_t slot_of(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    uint64_t hash = key * 0x9e3779b97f4a7c15;
    hash ^= hash >> 32;
    size_t i = hash & mask;
    while (slots_[i].key != kFree && slots_[i].key != key) i = (i + 1) & mask;
    return i;
  }

  std::vector<Slot> slots_;
};

}  // namespace accelerate::tokenizers
