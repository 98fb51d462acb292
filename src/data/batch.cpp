#include "accelerate/batch.h"

#include <ATen/ATen.h>

namespace accelerate {

at::Tensor BatchInfo::valid_mask() const { return at::arange(size).lt(valid); }

}  // namespace accelerate
