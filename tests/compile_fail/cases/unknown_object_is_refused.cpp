// expect: prepare() does not know this type; wrap it in accelerate::pass_through()
#include <accelerate/accelerate.h>
#include <torch/torch.h>

struct Tokens {
  int count = 0;
};

void prepare(accelerate::Accelerator& accelerator, Tokens& tokens);
void prepare(accelerate::Accelerator& accelerator, Tokens& tokens) {
#ifdef MUST_FAIL
  auto& same = accelerator.prepare(tokens);
#else
  auto& same = accelerator.prepare(accelerate::pass_through(tokens));
#endif
  same.count = 1;
}
