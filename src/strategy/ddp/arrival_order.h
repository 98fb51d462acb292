// Sends gradients in an order that all ranks share, as soon as a backward pass is done with them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "compat/gradient_hooks.h"

namespace accelerate {

// Parameters go in buckets. A bucket is sent as soon as all its parameters have their gradients and
// all buckets before it were sent, so the order is the same on all ranks and in all passes. What a
// pass leaves incomplete is sent when it ends: unused parameters hold nobody up.
class ArrivalOrder {
 public:
  struct Calls {
    // Sends this bucket: by the thread of a pass, or by that of finish(), one at a time.
    std::function<void(size_t bucket)> send;
    // A gradient came in a pass that was not armed. By the thread of that pass.
    std::function<void()> on_local_gradient;
  };

  // `bucket_of` has the bucket of each of `parameters`, which are on one device. No bucket waits
  // for those that need no gradient.
  ArrivalOrder(std::vector<at::Tensor> parameters, std::vector<size_t> bucket_of, size_t buckets,
               Calls calls);

  // Before each forward pass. What sees gradients keeps the nodes alive that they go through, and
  // these stay on the stream on which they were made: a pass on another one makes new ones. Steps
  // that are recorded as graphs need nodes of their own, which `held` false lets them make; passes
  // that bypass the accelerator are then not seen.
  void hold_hooks(bool held);
  // Before a pass. Without `overlaps` all is sent by finish().
  void arm(bool overlaps);

  struct End {
    bool reached = false;          // any parameter; nothing was sent if not
    std::optional<size_t> late{};  // got a gradient after its bucket was sent
  };
  // After it, on the same thread: sends what is left.
  End finish();

  // How many buckets were on their way before the latest pass ended.
  size_t overlapped() const { return overlapped_; }

 private:
  void make_hooks();
  void came(size_t parameter);

  std::vector<at::Tensor> parameters_;
  std::vector<size_t> bucket_of_;
  std::vector<size_t> sizes_;  // of buckets, in parameters
  Calls calls_;

  std::mutex mutex_;  // of what follows: passes have threads of their own
  bool armed_ = false;
  bool overlaps_ = true;
  bool reached_ = false;
  std::vector<bool> came_;       // by parameter
  std::vector<size_t> missing_;  // by bucket
  size_t sent_ = 0;
  size_t overlapped_ = 0;
  std::optional<size_t> late_;

  bool holds_hooks_ = true;
  std::optional<c10::Stream> made_on_;  // the stream of the hooks; unset where there are none
  std::unique_ptr<compat::GradientHooks> hooks_;  // last: they call the rest
};

}  // namespace accelerate
