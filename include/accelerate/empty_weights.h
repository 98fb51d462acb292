// Modules whose parameters have shapes and no memory.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "accelerate/export.h"

namespace torch::nn {
class Module;
}

namespace accelerate {

// While it lives, floating-point tensors that its thread makes have no memory: those of a module
// that is larger than memory, say.
//
//   std::shared_ptr<Net> net;
//   {
//     const auto empty = init_empty_weights();
//     net = std::make_shared<Net>(settings);
//   }
//   load_checkpoint_in_model(*net, folder);  // or not: then the module's own initialisation counts
//   auto [model, optimizer] = accelerator.prepare(net, adamw);
//
// What is done to them, initialisation at random included, is noted and done when their values are
// wanted: by prepare(), which under stage 3 of ZeroOptions leaves each rank its shards alone, or by
// materialize(). The values are those that the same program would have made without this, to the
// last bit, and random generators of the CPU are left as it would have left them, unless something
// else has drawn from them in between. load_checkpoint_in_model() notes where in the files values
// are, and of safetensors each rank later reads its parts only.
//
// Until then reading a value (item(), data_ptr(), a copy to an ordinary tensor) throws. Tensors of
// integers and bools are made as ever, and so is what `torch::tensor({...})` makes. Destroyed by
// the thread that made it, the last made first.
class [[nodiscard]] ACCELERATE_EXPORT EmptyWeights {
 public:
  EmptyWeights();
  ~EmptyWeights();
  EmptyWeights(const EmptyWeights&) = delete;
  EmptyWeights& operator=(const EmptyWeights&) = delete;

 private:
  class ACCELERATE_HIDDEN Scope;
  std::unique_ptr<Scope> scope_;
};

// Of a thread. UsageError inside of another one.
[[nodiscard]] inline EmptyWeights init_empty_weights() { return EmptyWeights(); }

// Whether a parameter or buffer has no memory.
ACCELERATE_EXPORT bool has_empty_weights(const torch::nn::Module& module);

// Gives all parameters and buffers without memory their values, in memory of `device`, one after
// the other. Throws UsageError for tensors on the meta device that were made in another way: nobody
// knows their values.
ACCELERATE_EXPORT void materialize(torch::nn::Module& module, c10::Device device = c10::kCPU);

}  // namespace accelerate
