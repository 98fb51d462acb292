// A list of small pictures, as lines of a table: the picture, row by row, and what it shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Lines such as "..#./.#../...#/#...,2". `count` of them, of three kinds in turn.
inline std::vector<std::string> table_of_pictures(uint32_t count) {
  std::vector<std::string> lines;
  for (uint32_t number = 0; number < count; ++number) {
    const uint32_t kind = number % 3;
    uint32_t chance = number * 2654435761U;
    std::string line;
    for (uint32_t row = 0; row < 6; ++row) {
      if (row > 0) line += '/';
      for (uint32_t column = 0; column < 6; ++column) {
        chance = chance * 1664525U + 1013904223U;
        const bool drawn[] = {row == column, row == 2 || row == 3, (row + column) % 2 == 0};
        const bool speck = (chance >> 24) < 24;
        line += drawn[kind] != speck ? '#' : '.';
      }
    }
    lines.push_back(line + "," + std::to_string(kind));
  }
  return lines;
}
