// Modules that are born on a device.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "accelerate/export.h"

namespace accelerate {

// While it lives, tensors that its thread makes on the CPU, or without naming a device, come to be
// on `device`: the parameters and buffers of a module whose constructor runs in it.
//
//   Net net = nullptr;
//   {
//     const auto on_device = init_on_device(accelerator.device());
//     net = Net(settings);
//   }
//   torch::optim::AdamW adamw(net->parameters(), 1e-3);
//   auto [model, optimizer] = accelerator.prepare(net, adamw);
//
// Random numbers come from the CPU's generator, so that a seed gives the same model on every
// device. What moves a module to an XLA device otherwise, prepare(), has to find every handle of
// its parameters; a module that was born there needs no such search. Destroyed by the thread that
// made it, the last made first.
class [[nodiscard]] ACCELERATE_EXPORT InitOnDevice {
 public:
  explicit InitOnDevice(c10::Device device);
  ~InitOnDevice();
  InitOnDevice(const InitOnDevice&) = delete;
  InitOnDevice& operator=(const InitOnDevice&) = delete;

 private:
  class ACCELERATE_HIDDEN Scope;
  std::unique_ptr<Scope> scope_;
};

// Of a thread. UsageError inside of another one.
[[nodiscard]] inline InitOnDevice init_on_device(c10::Device device) {
  return InitOnDevice(device);
}

}  // namespace accelerate
