// The ported GAN, with an accelerator that names torch's generator in `rng_types`: its ranks draw
// the same noise.
#include <accelerate/accelerate.h>

#include <utility>

namespace accelerate {
class AcceleratorInStep : public Accelerator {
 public:
  explicit AcceleratorInStep(AcceleratorOptions options)
      : Accelerator(in_step(std::move(options))) {}

 private:
  static AcceleratorOptions in_step(AcceleratorOptions options) {
    options.data_loader.rng_types = {"torch"};
    return options;
  }
};
}  // namespace accelerate

#define Accelerator AcceleratorInStep
#include "after.cpp"
