// Times and sizes in the tables of a profile.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "base/size_in_words.h"

namespace accelerate {

// "12.3 us", "4.56 ms", "7.89 s".
inline std::string profile_time(double us) {
  char text[48];
  if (std::abs(us) < 1e3) {
    std::snprintf(text, sizeof(text), "%.1f us", us);
  } else if (std::abs(us) < 1e6) {
    std::snprintf(text, sizeof(text), "%.2f ms", us / 1e3);
  } else {
    std::snprintf(text, sizeof(text), "%.2f s", us / 1e6);
  }
  return text;
}

inline std::string profile_share(double part, double whole) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.1f%%", whole > 0 ? 100 * part / whole : 0);
  return text;
}

// With a sign where memory was given back.
inline std::string profile_bytes(int64_t bytes) {
  if (bytes >= 0) return size_in_words(static_cast<uint64_t>(bytes), 1);
  return "-" + size_in_words(uint64_t{0} - static_cast<uint64_t>(bytes), 1);
}

// "1.2 GFLOP"; "" for none.
inline std::string profile_flops(uint64_t flops) {
  if (flops == 0) return "";
  constexpr const char* kUnits[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
  auto count = static_cast<double>(flops);
  size_t unit = 0;
  while (count >= 1000 && unit + 1 < std::size(kUnits)) {
    count /= 1000;
    ++unit;
  }
  char text[48];
  std::snprintf(text, sizeof(text), "%.1f %s", count, kUnits[unit]);
  return text;
}

}  // namespace accelerate
