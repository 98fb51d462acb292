// SplitMix64 of Steele, Lea and Flood: numbers that look random, from any seed, the same in every
// build. Standard headers only.
#pragma once

#include <cstdint>

namespace accelerate {

// How far a state moves from number to number: 2^64 by the golden ratio, made odd.
inline constexpr uint64_t kSplitMixStep = 0x9e3779b97f4a7c15;

// The number of one state. Of states that are near each other it gives numbers that are not.
constexpr uint64_t split_mix(uint64_t state) {
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return state ^ (state >> 31);
}

class SplitMix {
 public:
  constexpr explicit SplitMix(uint64_t seed) : state_(seed) {}

  constexpr uint64_t next() { return split_mix(state_ += kSplitMixStep); }
  // From 0 to 1, without 1.
  constexpr double share() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_;
};

}  // namespace accelerate
