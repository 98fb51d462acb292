// What tests of gradient accumulation share.
#pragma once

#include "multiproc/prepared_mlp.h"

namespace accelerate::test {

inline AcceleratorOptions accumulating(GradientAccumulationOptions options) {
  AcceleratorOptions all = on_cpu();
  all.gradient_accumulation = options;
  return all;
}

struct AccumulationOn : Ranks, testing::WithParamInterface<int> {
  void run_ranks(const RankBody& body, const RankOptions& options = {}) {
    run(GetParam(), body, options);
  }
};

}  // namespace accelerate::test
