// expect: no match
#include <accelerate/accelerate.h>
#include <torch/torch.h>

void run(accelerate::Accelerator& accelerator, const torch::Tensor& x);
void run(accelerate::Accelerator& accelerator, const torch::Tensor& x) {
  auto model = accelerator.prepare(torch::nn::Linear(4, 2));
#ifdef MUST_FAIL
  auto y = model(x, x);
#else
  auto y = model(x);
#endif
}
