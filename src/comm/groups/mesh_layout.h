// Which ranks meet on which axes of a grid. The last axis runs fastest.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace accelerate::comm {

// Where `rank` stands on each axis.
inline std::vector<int> coordinates_of(int rank, const std::vector<int>& sizes) {
  std::vector<int> coordinates(sizes.size());
  for (size_t axis = sizes.size(); axis-- > 0;) {
    coordinates[axis] = rank % sizes[axis];
    rank /= sizes[axis];
  }
  return coordinates;
}

// The ranks that differ from `rank` on the axes that are `chosen` alone, in their order.
inline std::vector<int> ranks_on(int rank, const std::vector<int>& sizes,
                                 const std::vector<bool>& chosen) {
  const std::vector<int> own = coordinates_of(rank, sizes);
  std::vector<int> ranks{0};
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    std::vector<int> further;
    for (const int begun : ranks) {
      for (int at = 0; at < sizes[axis]; ++at) {
        if (chosen[axis] || at == own[axis]) further.push_back(begun * sizes[axis] + at);
      }
    }
    ranks = std::move(further);
  }
  return ranks;
}

}  // namespace accelerate::comm
