// expect: no member named
// expect: fc
#include <accelerate/accelerate.h>
#include <torch/torch.h>

struct NetImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return fc(x); }
  torch::nn::Linear fc = register_module("fc", torch::nn::Linear(4, 2));
};
TORCH_MODULE(Net);

void run(accelerate::Accelerator& accelerator, const torch::Tensor& x);
void run(accelerate::Accelerator& accelerator, const torch::Tensor& x) {
  auto model = accelerator.prepare(Net());
#ifdef MUST_FAIL
  auto y = model->fc(x);
#else
  auto y = accelerator.unwrap_model(model)->fc(x);
#endif
}
