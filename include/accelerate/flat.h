// Parameters in half precision, trained as if they were float32.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace accelerate {

// What prepare() makes of a model where AcceleratorOptions::flat is set. The parameters that need a
// gradient move into one vector, in `dtype`; they stay the same tensors. Beside it lie float32
// masters, which optimizers update, and one float32 vector of gradients, to which passes add: each
// .grad() is a part of it. The rest of a program stays as it is.
//
//   Accelerator accelerator({.flat = FlatOptions{}});
//   auto [model, optimizer] = accelerator.prepare(net, adamw);
//
// torch::optim::AdamW is updated by one kernel for all parameters on GPUs for which the library has
// kernels; all other optimizers, and AdamW on other devices, step on the masters, which are then
// copied to the model. On several ranks the gradients are averaged in parts of the vector, while
// the backward pass still runs. save_state() keeps the masters, under the names of the parameters;
// it can be loaded with other FlatOptions or without. So does save_model().
//
// What differs from parameters of their own:
//  - Gradients are float32 parts of the vector. Passes that bypass Accelerator::backward() leave
//    them in the type of the parameters, as torch does, until the next call of the library.
//  - Where one kernel updates all, clip_grad_norm_() of all parameters leaves the gradients as they
//    are: the update scales them.
//  - Parameters are of one device and dense, and gradients are not sparse: UsageError otherwise.
//    Frozen parameters and buffers are left alone. Layers that meet inputs of another type need
//    mixed_precision, as always.
//  - A module must not be moved, cast or given other tensors, as torch::load() does, once it was
//    prepared: its next pass is a UsageError. Values that are written in place are taken over.
//  - On several ranks: unused parameters need no option; join_uneven_inputs(), communication hooks
//    and gradients that a pass adds after they were sent, as nested backward passes do, are a
//    UsageError. Replicas are compared in save_state() only.
// free_memory(), or the end of the accelerator where no prepared model is held any more, gives a
// module its parameters back: in float32 where there are masters, else as they are.
struct FlatOptions {
  // What the model computes with: kBFloat16, kHalf or kFloat.
  at::ScalarType dtype = at::kBFloat16;
  // False: saves the memory of the masters. Updates are made on the parameters themselves, which
  // are rounded up or down at random, so that small updates count on average. `seed`, the number of
  // the update and the place of an element determine it, on CPUs and GPUs alike. For bfloat16 and
  // AdamW alone. Float32 has no masters in any case.
  bool masters = true;
  uint64_t seed = 0;
};

}  // namespace accelerate
