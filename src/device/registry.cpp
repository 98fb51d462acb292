#include <ATen/Context.h>
#include <ATen/DeviceAccelerator.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "accelerate/errors.h"
#include "device/cuda_plugin.h"
#include "device/device_backend.h"
#include "device/generators.h"
#include "device/own_backends.h"

namespace accelerate::device {
namespace {

constexpr auto kKinds = static_cast<size_t>(c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);

// A kind of device that nobody described.
class UnknownDevices final : public DeviceBackend {
 public:
  using DeviceBackend::DeviceBackend;
  int count() const override { return 0; }
};

// One for the process, never destroyed: objects with static storage may still ask.
class Registry {
 public:
  static Registry& instance() {
    static auto* const registry = new Registry;
    return *registry;
  }

  const DeviceBackend& of(c10::DeviceType type) const {
    return *slots_[static_cast<size_t>(type)].load(std::memory_order_acquire);
  }

  void add(std::unique_ptr<const DeviceBackend> backend) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const c10::DeviceType type = backend->type();
    auto& slot = slots_[static_cast<size_t>(type)];
    if (dynamic_cast<const UnknownDevices*>(slot.load()) == nullptr) {
      throw UsageError({.what = "there is a backend for devices of type " +
                                c10::DeviceTypeName(type, /*lower_case=*/true) + " already",
                        .where = "add_device_backend"});
    }
    if (type != c10::kCPU) by_preference_.push_back(type);
    if (backend->adds_in_float()) float_adders_.fetch_or(bit_of(type));
    slot.store(backend.get(), std::memory_order_release);
    owned_.push_back(std::move(backend));
  }

  std::vector<c10::DeviceType> by_preference() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return by_preference_;
  }

  bool adds_in_float(c10::DeviceType type) const {
    return (float_adders_.load(std::memory_order_relaxed) & bit_of(type)) != 0;
  }

 private:
  Registry() {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      owned_.push_back(std::make_unique<UnknownDevices>(static_cast<c10::DeviceType>(kind)));
      slots_[kind] = owned_.back().get();
    }
    add(make_cpu_backend());
    add(make_cuda_backend());
    add(make_xla_backend());
  }

  static_assert(kKinds <= 64);
  static uint64_t bit_of(c10::DeviceType type) { return uint64_t{1} << static_cast<int>(type); }

  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<const DeviceBackend>> owned_;
  std::vector<c10::DeviceType> by_preference_;
  std::array<std::atomic<const DeviceBackend*>, kKinds> slots_{};
  std::atomic<uint64_t> float_adders_ = 0;
};

}  // namespace

const DeviceBackend& device_backend(c10::DeviceType type) { return Registry::instance().of(type); }

void add_device_backend(std::unique_ptr<const DeviceBackend> backend) {
  Registry::instance().add(std::move(backend));
}

std::vector<VisibleDevices> visible_devices() {
  std::vector<VisibleDevices> visible;
  for (const c10::DeviceType type : Registry::instance().by_preference()) {
    visible.push_back({.type = type, .count = device_backend(type).count()});
  }
  return visible;
}

bool memory_can_be_pinned() {
  for (const c10::DeviceType type : Registry::instance().by_preference()) {
    if (device_backend(type).pins_memory()) return true;
  }
  return false;
}

void empty_all_caches() {
  for (const c10::DeviceType type : Registry::instance().by_preference()) {
    device_backend(type).empty_cache();
  }
}

void seed_all_devices(uint64_t seed) {
  warn_if_gpus_unusable();  // they are not seeded then
  at::manual_seed(seed);
  // That was the CPU and the one kind that libtorch takes for the accelerator of this process.
  const auto seeded = at::getAccelerator();
  for (const c10::DeviceType type : Registry::instance().by_preference()) {
    const bool usable = type != c10::kCUDA || at::globalContext().hasCUDA();
    if (type == seeded || !usable) continue;
    for (at::Generator& generator : device_backend(type).generators()) {
      seed_generator(generator, seed);
    }
  }
}

bool adds_in_float(c10::DeviceType type) { return Registry::instance().adds_in_float(type); }

}  // namespace accelerate::device
