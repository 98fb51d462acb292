#include "data/keyed_permutation.h"

#include <bit>
#include <numeric>
#include <utility>

namespace accelerate {
namespace {

// Spreads every bit of the input over the whole word (the finaliser of MurmurHash3).
uint64_t mixed(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

}  // namespace

KeyedPermutation::KeyedPermutation(int64_t n, uint64_t seed, uint64_t epoch)
    : n_(static_cast<uint64_t>(n)) {
  const int bits = n_ > 1 ? std::bit_width(n_ - 1) : 1;
  half_bits_ = (bits + 1) / 2;
  half_mask_ = (uint64_t{1} << half_bits_) - 1;
  uint64_t state = mixed(seed + 0x9e3779b97f4a7c15ULL) ^ mixed(~epoch);
  for (uint64_t& key : keys_) {
    state += 0x9e3779b97f4a7c15ULL;
    key = mixed(state);
  }
  if (n_ > kTableSize) return;
  std::iota(table_.begin(), table_.end(), uint8_t{0});
  for (uint64_t left = n_; left > 1; --left) {
    state += 0x9e3779b97f4a7c15ULL;
    // The bias of the remainder is below 2^-55.
    std::swap(table_[left - 1], table_[mixed(state) % left]);
  }
}

int64_t KeyedPermutation::operator()(int64_t index) const {
  if (n_ <= kTableSize) return table_[static_cast<size_t>(index)];
  uint64_t value = static_cast<uint64_t>(index);
  do {
    uint64_t left = value >> half_bits_;
    uint64_t right = value & half_mask_;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (mixed(right ^ key) & half_mask_);
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= n_);
  return static_cast<int64_t>(value);
}

}  // namespace accelerate
