// expect: pass a TORCH_MODULE holder or a std::shared_ptr to prepare()
#include <accelerate/accelerate.h>
#include <torch/torch.h>

void prepare(accelerate::Accelerator& accelerator);
void prepare(accelerate::Accelerator& accelerator) {
#ifdef MUST_FAIL
  torch::nn::LinearImpl linear(4, 2);
#else
  torch::nn::Linear linear(4, 2);
#endif
  auto model = accelerator.prepare(linear);
}
