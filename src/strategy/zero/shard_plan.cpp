#include "strategy/zero/shard_plan.h"

#include <algorithm>

namespace accelerate {
namespace {

// More than any kernel on the CPU takes at once, and 128 bytes in half precision.
constexpr int64_t kShardAlignment = 64;

int64_t aligned(int64_t numel) {
  return (numel + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
}

// A bucket that may get more parameters.
struct OpenBucket {
  at::ScalarType dtype;
  c10::Device device;
  size_t number;
};

}  // namespace

ShardPlan::ShardPlan(const TrainableParameters& parameters, int world_size, int64_t bucket_bytes)
    : world_size_(world_size), places_(parameters.tensors.size()) {
  std::vector<OpenBucket> open;
  for (size_t i = parameters.tensors.size(); i-- > 0;) {
    const at::Tensor& parameter = parameters.tensors[i];
    const auto takes = [&](const OpenBucket& bucket) {
      return bucket.dtype == parameter.scalar_type() && bucket.device == parameter.device();
    };
    const int64_t numel = aligned(parameter.numel());
    auto found = std::ranges::find_if(open, takes);
    if (found != open.end()) {
      const Bucket& bucket = buckets_[found->number];
      if ((bucket.numel + numel) * static_cast<int64_t>(parameter.element_size()) > bucket_bytes) {
        open.erase(found);
        found = open.end();
      }
    }
    if (found == open.end()) {
      found = open.insert(open.end(), {.dtype = parameter.scalar_type(),
                                       .device = parameter.device(),
                                       .number = buckets_.size()});
      buckets_.emplace_back();
    }
    Bucket& bucket = buckets_[found->number];
    places_[i] = {.name = parameters.names[i],
                  .numel = parameter.numel(),
                  .bucket = found->number,
                  .begin = bucket.numel};
    bucket.parameters.push_back(i);
    bucket.numel += numel;
    numbers_.emplace(parameter.unsafeGetTensorImpl(), i);
  }
  for (Bucket& bucket : buckets_) {
    bucket.part_numel = aligned((bucket.numel + world_size - 1) / world_size);
  }
}

std::optional<size_t> ShardPlan::find(const at::Tensor& tensor) const {
  const auto found = numbers_.find(tensor.unsafeGetTensorImpl());
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

ElementRange ShardPlan::part(size_t parameter, int rank) const {
  const Place& place = places_[parameter];
  const int64_t part_numel = buckets_[place.bucket].part_numel;
  const auto within = [&](int64_t in_bucket) {
    return std::clamp<int64_t>(in_bucket - place.begin, 0, place.numel);
  };
  return {.begin = within(rank * part_numel), .end = within((rank + 1) * part_numel)};
}

int64_t ShardPlan::begin_in_part(size_t parameter, int rank) const {
  const Place& place = places_[parameter];
  const ElementRange own = part(parameter, rank);
  if (own.numel() == 0) return 0;
  return place.begin + own.begin - rank * buckets_[place.bucket].part_numel;
}

}  // namespace accelerate
