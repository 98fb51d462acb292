#include "residency/touch/unit_layout.h"

#include <algorithm>

namespace accelerate::residency {
namespace {

// 128 bytes in half precision, which matrix kernels like.
constexpr int64_t kRowAlignment = 64;

int64_t aligned(int64_t numel) {
  return (numel + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

}  // namespace

UnitLayout::UnitLayout(const std::vector<int64_t>& numels, int world_size)
    : numels_(numels), world_size_(world_size) {
  int64_t next = 0;
  for (const int64_t numel : numels) {
    begins_.push_back(next);
    next += aligned(numel);
    parameter_numel_ += numel;
  }
  shard_numel_ = aligned((next + world_size - 1) / world_size);
}

std::optional<UnitLayout::Piece> UnitLayout::piece(size_t index, int rank) const {
  const int64_t shard_begin = rank * shard_numel_;
  const int64_t from = std::max(begin(index), shard_begin);
  const int64_t to = std::min(end(index), shard_begin + shard_numel_);
  if (from >= to) return std::nullopt;
  return Piece{.begin = from - begin(index), .end = to - begin(index), .place = from - shard_begin};
}

}  // namespace accelerate::residency
