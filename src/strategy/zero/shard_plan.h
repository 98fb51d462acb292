// Which rank keeps which elements of the parameters of a model.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "strategy/ddp/trainable_parameters.h"

namespace accelerate {

// Elements of a tensor, counted in row-major order; `end` is not included.
struct ElementRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t numel() const { return end - begin; }
};

// Cuts parameters into buckets: parameters of one type on one device, one after the other, which
// travel in one message. A bucket is cut into equal parts, one for each rank, of which the last may
// be padding. Each parameter begins at a multiple of so many elements, and so does each part of it,
// that kernels for vectors treat an element of a part as they treat it in the whole. The last
// parameters of the model come first: backward passes have their gradients first.
//
// Holds no tensor.
class ShardPlan {
 public:
  struct Bucket {
    std::vector<size_t> parameters{};  // numbers, in their order in the bucket
    int64_t numel = 0;                 // with the gaps between parameters
    int64_t part_numel = 0;            // of each rank
  };

  // All ranks give parameters that are alike. Parameters `given[i]` are those of bucket i, in that
  // order; the rest follows. Throws UsageError where two parameters have memory in common.
  ShardPlan(const TrainableParameters& parameters, int world_size, int64_t bucket_bytes,
            const std::vector<std::vector<size_t>>& given = {});

  int world_size() const { return world_size_; }
  size_t size() const { return places_.size(); }
  const std::string& name(size_t parameter) const { return places_[parameter].name; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // The number of a parameter. Only while the parameters of the model are alive.
  std::optional<size_t> find(const at::Tensor& tensor) const;

  size_t bucket_of(size_t parameter) const { return places_[parameter].bucket; }
  // Where its elements begin in its bucket.
  int64_t begin(size_t parameter) const { return places_[parameter].begin; }
  // The elements of a parameter that `rank` keeps; may be none.
  ElementRange part(size_t parameter, int rank) const;
  // Where these begin in the part of the bucket that `rank` keeps.
  int64_t begin_in_part(size_t parameter, int rank) const;

 private:
  void place(size_t parameter, const TrainableParameters& parameters, size_t bucket);

  struct Place {
    std::string name;
    int64_t numel = 0;
    size_t bucket = 0;
    int64_t begin = 0;
    bool is_placed = false;
  };

  int world_size_;
  std::vector<Place> places_;  // by parameter
  std::vector<Bucket> buckets_;
  std::unordered_map<const void*, size_t> numbers_;
};

}  // namespace accelerate
