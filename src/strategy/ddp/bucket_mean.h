// The plain mean of a bucket of gradients. (c10d's own, AllReduceCommHook, is not exported.)
#pragma once

#include <vector>

#include "compat/reducer.h"

namespace accelerate {

// Replaces the bucket by its mean over the ranks of `group`. Collective, does not wait. Divides
// first, so that the sum does not overflow where it fits.
inline c10::intrusive_ptr<c10::ivalue::Future> average_bucket(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, c10d::GradBucket& bucket) {
  std::vector<at::Tensor> message{bucket.getBufferRef()};
  message[0].div_(group->getSize());
  return group->allreduce(message)->getFuture();
}

}  // namespace accelerate
