// Which tensors of a value travel together.
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "accelerate/detail/operands.h"

namespace accelerate::comm {

// Tensors from this size on go alone: copying them together costs more than another collective.
constexpr int64_t kLargeBytes = int64_t{1} << 20;

enum class BucketBy { kDevice, kDeviceAndDtype };

// The numbers of the tensors in each bucket, in the order of their first ones. `bytes` gives the
// sizes to judge them by, which must be the same on all ranks.
std::vector<std::vector<size_t>> bucket_tensors(const detail::Operands& operands,
                                                const std::vector<int64_t>& bytes, BucketBy by);

}  // namespace accelerate::comm
