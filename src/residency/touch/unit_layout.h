// Where the elements of a unit's parameters lie: in one row, cut into equal shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace accelerate::residency {

// Parameters one after the other, each from a multiple of 64 elements on; the row is filled up so
// that all ranks have shards of one length, which is a multiple of 64 too. Rank r holds the
// elements from r * shard_numel() on.
class UnitLayout {
 public:
  // At least one parameter.
  UnitLayout(const std::vector<int64_t>& numels, int world_size);

  size_t parameters() const { return numels_.size(); }
  // Of a parameter in the row.
  int64_t begin(size_t index) const { return begins_[index]; }
  int64_t end(size_t index) const { return begins_[index] + numels_[index]; }
  int64_t shard_numel() const { return shard_numel_; }
  int64_t whole_numel() const { return shard_numel_ * world_size_; }
  // Of the parameters, without what lies between them.
  int64_t parameter_numel() const { return parameter_numel_; }

  // What of a parameter lies in a shard.
  struct Piece {
    int64_t begin = 0;  // elements of the flattened parameter
    int64_t end = 0;
    int64_t place = 0;  // of the first of them in the shard
    int64_t numel() const { return end - begin; }
  };
  // Nothing where the shard of `rank` has no element of it.
  std::optional<Piece> piece(size_t index, int rank) const;

 private:
  std::vector<int64_t> numels_;
  std::vector<int64_t> begins_;
  int world_size_;
  int64_t shard_numel_ = 0;
  int64_t parameter_numel_ = 0;
};

}  // namespace accelerate::residency
