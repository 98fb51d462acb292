// A permutation of 0 .. n-1 computed index by index.
#pragma once

#include <array>
#include <cstdint>

namespace accelerate {

// A Feistel network over the smallest even number of bits that holds n, walked until it lands below
// n (fewer than four steps on average). Every key gives one of the permutations; which one looks
// random. So few values that the halves of the network would be too narrow to mix are shuffled in
// a table instead. Any thread.
class KeyedPermutation {
 public:
  // n >= 0.
  KeyedPermutation(int64_t n, uint64_t seed, uint64_t epoch);

  // The image of `index`, 0 <= index < n.
  int64_t operator()(int64_t index) const;

 private:
  static constexpr int kRounds = 6;
  static constexpr uint64_t kTableSize = 256;

  uint64_t n_;
  int half_bits_;
  uint64_t half_mask_;
  std::array<uint64_t, kRounds> keys_;
  std::array<uint8_t, kTableSize> table_;  // up to kTableSize values
};

}  // namespace accelerate
