#include "device/xla_generator.h"

#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <cstdint>
#include <cstring>
#include <optional>

#include "compat/xla/client.h"

namespace accelerate::device {
namespace {

class XlaGenerator final : public c10::GeneratorImpl {
 public:
  explicit XlaGenerator(c10::Device device)
      : GeneratorImpl(device, c10::DispatchKeySet(c10::DispatchKey::XLA)) {}

  void set_current_seed(uint64_t seed) override {
    if (copied_seed_) {
      copied_seed_ = seed;
    } else {
      compat::set_xla_seed(device(), seed);
    }
  }
  uint64_t current_seed() const override {
    return copied_seed_ ? *copied_seed_ : compat::xla_seed(device());
  }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return current_seed();
  }
  void set_offset(uint64_t /*offset*/) override {
    TORCH_CHECK(false, "the random numbers of an XLA device have no offset");
  }
  uint64_t get_offset() const override { return 0; }

  void set_state(const c10::TensorImpl& state) override {
    uint64_t seed = 0;
    TORCH_CHECK(state.device().is_cpu() && state.numel() == sizeof seed &&
                    state.dtype() == caffe2::TypeMeta::Make<uint8_t>(),
                "a state of an XLA device is a tensor of 8 bytes on the CPU");
    std::memcpy(&seed, state.data(), sizeof seed);
    set_current_seed(seed);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const uint64_t seed = current_seed();
    at::Tensor state = at::empty({sizeof seed}, at::TensorOptions(at::kByte).device(at::kCPU));
    std::memcpy(state.mutable_data_ptr(), &seed, sizeof seed);
    return state.getIntrusivePtr();
  }

 private:
  // A copy does not move the device's own.
  XlaGenerator* clone_impl() const override {
    auto* copy = new XlaGenerator(device());
    copy->copied_seed_ = current_seed();
    return copy;
  }

  std::optional<uint64_t> copied_seed_;
};

}  // namespace

at::Generator make_xla_generator(c10::Device device) {
  return at::make_generator<XlaGenerator>(device);
}

}  // namespace accelerate::device
