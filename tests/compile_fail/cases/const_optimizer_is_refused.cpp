// expect: prepare() needs a mutable optimizer
#include <accelerate/accelerate.h>
#include <torch/torch.h>

#ifdef MUST_FAIL
using Sgd = const torch::optim::SGD;
#else
using Sgd = torch::optim::SGD;
#endif

void prepare(accelerate::Accelerator& accelerator, Sgd& sgd);
void prepare(accelerate::Accelerator& accelerator, Sgd& sgd) {
  auto optimizer = accelerator.prepare(sgd);
}
