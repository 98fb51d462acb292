// A permutation of 0 .. n-1 computed index by index.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace accelerate {

// A Feistel network over as few bits as hold n, walked until it lands below n (fewer than two steps
// on average). Every key gives one of the permutations; which one looks random. So few values that
// the halves of the network would be too narrow to mix are shuffled in a table instead. Any thread.
class KeyedPermutation {
 public:
  // n >= 0.
  KeyedPermutation(int64_t n, uint64_t seed, uint64_t epoch);

  // The images of first, first + 1, ...; all of them at least 0 and below n.
  void read(int64_t first, std::span<int64_t> images) const;

 private:
  static constexpr int kRounds = 6;  // an even number
  static constexpr uint64_t kTableSize = 512;

  // The network once: a permutation of 0 .. 2^(left_bits + right_bits) - 1.
  uint64_t step(uint64_t value) const;

  uint64_t n_;
  int right_bits_;  // of the two halves, the narrower one
  uint64_t left_mask_;
  uint64_t right_mask_;
  std::array<uint64_t, kRounds> keys_;
  std::array<uint16_t, kTableSize> table_;  // up to kTableSize values
};

}  // namespace accelerate
