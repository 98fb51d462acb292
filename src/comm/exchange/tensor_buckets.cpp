#include "comm/exchange/tensor_buckets.h"

#include <algorithm>

namespace accelerate::comm {

std::vector<std::vector<size_t>> bucket_tensors(const detail::Operands& operands,
                                                const std::vector<int64_t>& bytes, BucketBy by) {
  std::vector<std::vector<size_t>> buckets;
  for (size_t tensor = 0; tensor < operands.tensors.size(); ++tensor) {
    const at::Tensor& own = *operands.tensors[tensor];
    const auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const auto& others) {
      const at::Tensor& other = *operands.tensors[others.front()];
      return bytes[others.front()] < kLargeBytes && bytes[tensor] < kLargeBytes &&
             other.device() == own.device() &&
             (by == BucketBy::kDevice || other.scalar_type() == own.scalar_type());
    });
    if (bucket != buckets.end()) {
      bucket->push_back(tensor);
    } else {
      buckets.push_back({tensor});
    }
  }
  return buckets;
}

}  // namespace accelerate::comm
