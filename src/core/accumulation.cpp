#include "accelerate/accumulation.h"

#include <string>

#include "accelerate/errors.h"

namespace accelerate::detail {

AccumulationWindow::AccumulationWindow(int64_t steps, bool sync_with_dataloader)
    : steps_(steps), sync_with_dataloader_(sync_with_dataloader) {
  if (steps >= 1) return;
  throw UsageError({.what = "a window of gradient accumulation has at least 1 step, got " +
                            std::to_string(steps),
                    .where = "gradient_accumulation.steps",
                    .hint = "1 is a step for every batch"});
}

void AccumulationWindow::begin_micro_batch(bool last_of_loader) {
  if (sync_) begun_ = 0;
  ++begun_;
  if (sync_with_dataloader_ && last_of_loader) {
    step_ = 0;
    sync_ = true;
  } else {
    ++step_;
    sync_ = step_ % steps_ == 0;
  }
}

}  // namespace accelerate::detail
