// What tests of scaled losses share.
#pragma once

#include "multiproc/prepared_mlp.h"

namespace accelerate::test {

inline AcceleratorOptions in_fp16(double init_scale = 8, int64_t steps = 1) {
  AcceleratorOptions options = on_cpu();
  options.mixed_precision = "fp16";
  options.grad_scaler.init_scale = init_scale;
  options.gradient_accumulation.steps = steps;
  options.scheduler.pace = SchedulerPace::kPerOptimizerStep;
  return options;
}

struct ScaledLosses : Ranks, testing::WithParamInterface<int> {
  void run_ranks(const RankBody& body, const RankOptions& options = {}) {
    run(GetParam(), body, options);
  }
};

}  // namespace accelerate::test
