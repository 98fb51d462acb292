// Releasing memory.
#pragma once

#include <type_traits>

#include "accelerate/export.h"

namespace accelerate {

// Gives memory that libtorch keeps for later allocations on the GPU back to the driver. Does
// nothing without a GPU. Waits for the device.
ACCELERATE_EXPORT void clear_device_cache();

// Empties tensors, smart pointers, module holders, optionals and containers, then the device's
// cache. What they pointed to is freed only if nothing else holds it: a prepared model is also
// held by its accelerator, see Accelerator::free_memory.
template <class... Ts>
void release_memory(Ts&... objects) {
  const auto release = [](auto& object) {
    using Object = std::remove_reference_t<decltype(object)>;
    if constexpr (requires { object.reset(); }) {
      object.reset();
    } else if constexpr (requires { object.clear(); }) {
      object = Object();  // clear() would keep the capacity
    } else {
      object = nullptr;
    }
  };
  (release(objects), ...);
  clear_device_cache();
}

}  // namespace accelerate
