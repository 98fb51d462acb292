// expect: prepare() needs at least one object
#include <accelerate/accelerate.h>
#include <torch/torch.h>

void prepare(accelerate::Accelerator& accelerator, const torch::nn::Linear& linear);
void prepare(accelerate::Accelerator& accelerator, const torch::nn::Linear& linear) {
#ifdef MUST_FAIL
  accelerator.prepare();
#else
  accelerator.prepare(linear);
#endif
}
