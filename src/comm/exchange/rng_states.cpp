#include "accelerate/communicator.h"
#include "accelerate/detail/stamped.h"
#include "accelerate/errors.h"
#include "accelerate/rng_types.h"
#include "comm/groups/activity.h"
#include "device/device_backend.h"
#include "device/generators.h"

namespace accelerate {
namespace {

at::Generator generator_of_accelerator(std::optional<c10::Device> gpu) {
  if (gpu && gpu->is_cpu()) {
    throw UsageError({.what = gpu->str() + " is not a GPU",
                      .where = "synchronize_rng_states",
                      .hint = "pass the device whose random state 'cuda' means"});
  }
  for (const VisibleDevices& kind : device::visible_devices()) {
    if (kind.count == 0 || (gpu && gpu->type() != kind.type)) continue;
    return device::device_backend(kind.type).generator(gpu.value_or(kind.type));
  }
  throw UsageError({.what = "there is no GPU whose random state could be synchronised",
                    .where = "synchronize_rng_states",
                    .hint = "leave 'cuda' out of the types"});
}

at::Generator generator_of_xla(std::optional<c10::Device> device) {
  const device::DeviceBackend& xla = device::device_backend(c10::kXLA);
  if (xla.count() > 0) {
    const bool is_named = device && device->type() == c10::kXLA;
    return xla.generator(is_named ? *device : c10::Device(c10::kXLA, 0));
  }
  throw UsageError({.what = "there is no XLA device whose random state could be synchronised",
                    .where = "synchronize_rng_states",
                    .hint = "leave 'xla' out of the types"});
}

at::Generator generator_of(RngType type, const std::optional<at::Generator>& generator,
                           std::optional<c10::Device> gpu) {
  switch (type.value()) {
    case RngType::kTorch:
      return device::device_backend(c10::kCPU).generator(c10::kCPU);
    case RngType::kCuda:
      return generator_of_accelerator(gpu);
    case RngType::kXla:
      return generator_of_xla(gpu);
    case RngType::kGenerator:
      break;
  }
  if (generator && generator->defined()) return *generator;
  throw UsageError({.what = "'generator' is to be synchronised, but none was given",
                    .where = "synchronize_rng_states",
                    .hint = "pass the generator, or leave 'generator' out of the types"});
}

}  // namespace

RngType::RngType(std::string_view name) {
  if (name == "torch") {
    value_ = kTorch;
  } else if (name == "cuda") {
    value_ = kCuda;
  } else if (name == "xla") {
    value_ = kXla;
  } else if (name == "generator") {
    value_ = kGenerator;
  } else {
    throw UsageError({.what = "'" + std::string(name) + "' is not a type of random state",
                      .where = "rng_types",
                      .hint = "one of torch, cuda, xla, generator"});
  }
}

void synchronize_rng_states(Communicator& communicator, const std::vector<RngType>& types,
                            std::optional<at::Generator> generator,
                            std::optional<c10::Device> gpu) {
  std::vector<at::Generator> generators;
  generators.reserve(types.size());
  detail::stamped(communicator, [&] {
    for (const RngType type : types) generators.push_back(generator_of(type, generator, gpu));
  });
  const comm::Activity activity(communicator, "synchronize_rng_states");
  for (at::Generator& each : generators) {
    at::Tensor state = device::generator_state(each);
    communicator.broadcast(state);
    device::set_generator_state(each, state);
  }
}

}  // namespace accelerate
