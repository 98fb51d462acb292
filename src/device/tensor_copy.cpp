#include "device/tensor_copy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "device/device_backend.h"

namespace accelerate::device {

TensorCopies::TensorCopies(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<c10::Device> devices;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.is_cpu()) {
      copies_.push_back(tensor.detach().clone(at::MemoryFormat::Contiguous));
    } else if (!device_backend(tensor.device().type()).pins_memory()) {
      copies_.push_back(tensor.detach().to(at::kCPU).contiguous());
    } else {
      at::Tensor copy =
          at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(true));
      copies_.push_back(copy.copy_(tensor.detach(), /*non_blocking=*/true));
      if (std::ranges::find(devices, tensor.device()) == devices.end()) {
        devices.push_back(tensor.device());
      }
    }
  }
  for (const c10::Device device : devices) {
    made_.push_back(std::make_unique<c10::Event>(device.type()));
    made_.back()->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
}

bool TensorCopies::ready() const {
  return std::ranges::all_of(made_, [](const auto& event) { return event->query(); });
}

}  // namespace accelerate::device
