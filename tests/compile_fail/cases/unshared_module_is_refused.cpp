// expect: pass a TORCH_MODULE holder or a std::shared_ptr to prepare()
#include <accelerate/accelerate.h>
#include <torch/torch.h>

void prepare(accelerate::Accelerator& accelerator);
void prepare(accelerate::Accelerator& accelerator) {
#ifdef MUST_FAIL
  auto linear = std::make_unique<torch::nn::LinearImpl>(4, 2);
#else
  auto linear = std::make_shared<torch::nn::LinearImpl>(4, 2);
#endif
  auto model = accelerator.prepare(linear);
}
