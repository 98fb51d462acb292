#include "data/keyed_permutation.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <numeric>
#include <utility>

namespace accelerate {
namespace {

// Spreads every bit of the input over the whole word (the finaliser of MurmurHash3).
uint64_t mixed_bits(uint64_t x) {
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
  right_bits_ = bits / 2;
  right_mask_ = (uint64_t{1} << right_bits_) - 1;
  left_mask_ = (uint64_t{1} << (bits - right_bits_)) - 1;
  uint64_t state = mixed_bits(seed + 0x9e3779b97f4a7c15ULL) ^ mixed_bits(~epoch);
  for (uint64_t& key : keys_) {
    state += 0x9e3779b97f4a7c15ULL;
    key = mixed_bits(state);
  }
  if (n_ > kTableSize) return;
  std::iota(table_.begin(), table_.end(), uint16_t{0});
  for (uint64_t left = n_; left > 1; --left) {
    state += 0x9e3779b97f4a7c15ULL;
    // The bias of the remainder is below 2^-54.
    std::swap(table_[left - 1], table_[mixed_bits(state) % left]);
  }
}

uint64_t KeyedPermutation::step(uint64_t value) const {
  uint64_t left = value >> right_bits_;
  uint64_t right = value & right_mask_;
  for (size_t round = 0; round < kRounds; round += 2) {
    left ^= mixed_bits(right ^ keys_[round]) & left_mask_;
    right ^= mixed_bits(left ^ keys_[round + 1]) & right_mask_;
  }
  return left << right_bits_ | right;
}

void KeyedPermutation::read(int64_t first, std::span<int64_t> images) const {
  if (n_ <= kTableSize) {
    for (int64_t& image : images) image = table_[static_cast<size_t>(first++)];
    return;
  }
  // All values take the step together, then those that landed outside take it again, and so on: a
  // loop for each value would end after a number of steps that no processor can foresee.
  constexpr size_t kTogether = 64;
  std::array<uint8_t, kTogether> outside;
  while (!images.empty()) {
    const auto part = images.first(std::min(images.size(), kTogether));
    size_t count = 0;
    const auto walk = [&](size_t place, uint64_t from) {
      const uint64_t value = step(from);
      part[place] = static_cast<int64_t>(value);
      outside[count] = static_cast<uint8_t>(place);
      count += value >= n_ ? 1 : 0;
    };
    for (size_t place = 0; place < part.size(); ++place) {
      walk(place, static_cast<uint64_t>(first) + place);
    }
    while (count > 0) {
      const size_t again = std::exchange(count, 0);
      for (size_t i = 0; i < again; ++i) {
        const size_t place = outside[i];
        walk(place, static_cast<uint64_t>(part[place]));
      }
    }
    images = images.subspan(part.size());
    first += static_cast<int64_t>(part.size());
  }
}

}  // namespace accelerate
