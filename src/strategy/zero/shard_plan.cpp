#include "strategy/zero/shard_plan.h"

#include <algorithm>
#include <functional>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

// More than any kernel on the CPU takes at once, and 128 bytes in half precision.
constexpr int64_t kShardAlignment = 64;

int64_t aligned(int64_t numel) {
  return (numel + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
}

// What two parameters have in common would be updated in the shards of both, of which the last one
// counts.
void require_own_memory(const TrainableParameters& parameters) {
  struct Place {
    const char* begin;
    const char* end;
    size_t parameter;
  };
  std::vector<Place> places;
  for (size_t i = 0; i < parameters.tensors.size(); ++i) {
    const at::Tensor& tensor = parameters.tensors[i];
    if (tensor.is_meta() || tensor.numel() == 0 || !tensor.is_contiguous()) continue;
    const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
    places.push_back({.begin = begin, .end = begin + tensor.nbytes(), .parameter = i});
  }
  std::ranges::sort(places, {}, &Place::begin);
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].begin >= places[i - 1].end) continue;
    throw UsageError({.what = "'" + parameters.names[places[i - 1].parameter] + "' and '" +
                              parameters.names[places[i].parameter] +
                              "' are two parameters in the same memory",
                      .where = "prepare",
                      .hint = "register one tensor under both names to tie them"});
  }
}

// A bucket that may get more parameters.
struct OpenBucket {
  at::ScalarType dtype;
  c10::Device device;
  size_t number;
};

}  // namespace

ShardPlan::ShardPlan(const TrainableParameters& parameters, int world_size, int64_t bucket_bytes,
                     const std::vector<std::vector<size_t>>& given)
    : world_size_(world_size), places_(parameters.tensors.size()) {
  require_own_memory(parameters);
  for (const std::vector<size_t>& members : given) {
    buckets_.emplace_back();
    for (const size_t i : members) place(i, parameters, buckets_.size() - 1);
  }
  std::vector<OpenBucket> open;
  for (size_t i = parameters.tensors.size(); i-- > 0;) {
    if (places_[i].is_placed) continue;
    const at::Tensor& parameter = parameters.tensors[i];
    const auto takes = [&](const OpenBucket& bucket) {
      return bucket.dtype == parameter.scalar_type() && bucket.device == parameter.device();
    };
    auto found = std::ranges::find_if(open, takes);
    if (found != open.end()) {
      const int64_t numel = buckets_[found->number].numel + aligned(parameter.numel());
      if (numel * static_cast<int64_t>(parameter.element_size()) > bucket_bytes) {
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
    place(i, parameters, found->number);
  }
  for (Bucket& bucket : buckets_) {
    bucket.part_numel = aligned((bucket.numel + world_size - 1) / world_size);
  }
}

void ShardPlan::place(size_t parameter, const TrainableParameters& parameters, size_t bucket) {
  const at::Tensor& tensor = parameters.tensors[parameter];
  Bucket& own = buckets_[bucket];
  places_[parameter] = {.name = parameters.names[parameter],
                        .numel = tensor.numel(),
                        .bucket = bucket,
                        .begin = own.numel,
                        .is_placed = true};
  own.parameters.push_back(parameter);
  own.numel += aligned(tensor.numel());
  numbers_.emplace(tensor.unsafeGetTensorImpl(), parameter);
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
