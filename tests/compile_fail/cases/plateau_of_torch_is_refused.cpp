// expect: use accelerate::Scheduler(optimizer, accelerate::reduce_lr_on_plateau({}))
#include <accelerate/accelerate.h>
#include <torch/torch.h>

void prepare(accelerate::Accelerator& accelerator, torch::optim::SGD& sgd);
void prepare(accelerate::Accelerator& accelerator, torch::optim::SGD& sgd) {
#ifdef MUST_FAIL
  torch::optim::ReduceLROnPlateauScheduler plateau(sgd);
  accelerator.prepare(plateau);
#else
  accelerate::Scheduler plateau(sgd, accelerate::reduce_lr_on_plateau({}));
  auto scheduler = accelerator.prepare(plateau);
#endif
}
