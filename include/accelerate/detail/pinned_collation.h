// Where the default collate puts its tensors.
#pragma once

#include "accelerate/export.h"

namespace accelerate::detail {

// While one lives, what this thread collates goes into pinned memory, which a copy to a CUDA device
// needs in order to run beside the host. CUDA must be available. Guards may be nested.
class ACCELERATE_EXPORT PinnedCollation {
 public:
  PinnedCollation();
  ~PinnedCollation();
  PinnedCollation(const PinnedCollation&) = delete;
  PinnedCollation& operator=(const PinnedCollation&) = delete;

  // Whether this thread is inside one.
  static bool active();

 private:
  bool outer_;
};

}  // namespace accelerate::detail
