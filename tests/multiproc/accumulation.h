// What tests of gradient accumulation share.
#pragma once

#include "multiproc/training.h"

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

// The same on every rank and at every call.
inline std::shared_ptr<Mlp> fresh_net() {
  torch::manual_seed(7);
  return std::make_shared<Mlp>();
}

}  // namespace accelerate::test
