#include "unit/device/toy_device.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "device/device_backend.h"

namespace accelerate::test {
namespace {

constexpr auto kToy = c10::DeviceType::PrivateUse1;

// --- What libtorch needs ---

struct Bytes {
  std::atomic<int64_t> now = 0;
  std::atomic<int64_t> peak = 0;
};
Bytes bytes_of_toys;

thread_local c10::DeviceIndex current_toy = 0;

struct Block {
  void* memory;
  size_t size;
};

void free_block(void* any) {
  auto* block = static_cast<Block*>(any);
  bytes_of_toys.now -= static_cast<int64_t>(block->size);
  std::free(block->memory);
  delete block;
}

struct ToyAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    auto* block = new Block{std::malloc(std::max<size_t>(size, 1)), size};
    const int64_t now = bytes_of_toys.now += static_cast<int64_t>(size);
    int64_t peak = bytes_of_toys.peak;
    while (peak < now && !bytes_of_toys.peak.compare_exchange_weak(peak, now)) {
    }
    return {block->memory, block, free_block, toy_device(current_toy)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_block; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }
};

ToyAllocator toy_allocator;

struct ToyGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kToy; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return toy_device(current_toy); }
  void setDevice(c10::Device device) const override { current_toy = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    current_toy = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device.has_index() ? device : getDevice());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return kToyDevices; }
};

const ToyGuard toy_guard;

struct ToyGenerator final : at::CPUGeneratorImpl {
  explicit ToyGenerator(c10::Device device) {
    device_ = device;
    key_set_ = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
  }
};

const at::Generator& toy_generator(c10::DeviceIndex index) {
  static const std::array<at::Generator, kToyDevices> generators{
      at::make_generator<ToyGenerator>(toy_device(0)),
      at::make_generator<ToyGenerator>(toy_device(1))};
  return generators.at(static_cast<size_t>(index < 0 ? current_toy : index));
}

struct ToyHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kToyDevices; }
  c10::DeviceIndex getCurrentDevice() const override { return current_toy; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return toy_generator(index);
  }
};

at::Tensor empty_toy(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<at::Device> device,
                     std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &toy_allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided_toy(at::IntArrayRef size, at::IntArrayRef stride,
                             std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                             std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &toy_allocator,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// The same memory, seen as a tensor of the CPU.
at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.device().is_privateuseone()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions(tensor.scalar_type()));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (from.sizes() != to.sizes()) at::native::resize_(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Tensor& copy_into(at::Tensor& to, const at::Tensor& from, bool) {
  on_host(to).copy_(on_host(from));
  return to;
}

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty_toy);
  library.impl("empty_strided", empty_strided_toy);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("copy_", copy_into);
  library.impl("view", at::native::view);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("resize_", at::native::resize_);
}

// --- What this library needs ---

class ToyDevices final : public device::DeviceBackend {
 public:
  ToyDevices() : DeviceBackend(kToy) {}

  int count() const override { return kToyDevices; }

  // libtorch does not let set_data() change the kind of a tensor to this one, so the tensors take
  // over what they are by themselves.
  void place(torch::nn::Module& module, c10::Device device) const override {
    const auto move = [&](const at::Tensor& tensor) {
      if (tensor.device() == device) return;
      const at::NoGradGuard no_grad;
      tensor.unsafeGetTensorImpl()->shallow_copy_from(tensor.to(device).getIntrusivePtr());
    };
    for (const at::Tensor& parameter : module.parameters()) move(parameter);
    for (const at::Tensor& buffer : module.buffers()) move(buffer);
  }

  void synchronize(c10::Device) const override { ++toy_calls().synchronizations; }
  void end_of_step(c10::Device) const override { ++toy_calls().ends_of_step; }

  std::optional<device::DeviceMemory> memory(c10::Device) const override {
    return device::DeviceMemory{.allocated_bytes = bytes_of_toys.now,
                                .peak_bytes = bytes_of_toys.peak};
  }
  void reset_peak_memory(c10::Device) const override {
    bytes_of_toys.peak = bytes_of_toys.now.load();
  }
  void empty_cache() const override { ++toy_calls().emptied_caches; }

  at::Generator generator(c10::Device device) const override {
    return toy_generator(device.index());
  }
};

}  // namespace

ToyCalls& toy_calls() {
  static ToyCalls calls;
  return calls;
}

void install_toy_devices() {
  static const bool installed = [] {
    c10::register_privateuse1_backend("toy");
    at::RegisterPrivateUse1HooksInterface(new ToyHooks);
    const c10::impl::DeviceGuardImplRegistrar guard(kToy, &toy_guard);
    c10::SetAllocator(kToy, &toy_allocator);
    device::add_device_backend(std::make_unique<ToyDevices>());
    return true;
  }();
  (void)installed;
}

}  // namespace accelerate::test
