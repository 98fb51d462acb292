#include "device/device_backend.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accelerate/errors.h"
#include "device/generators.h"

namespace accelerate::device {
namespace {

TEST(DeviceBackend, OfTheCpuIsPlain) {
  const DeviceBackend& cpu = device_backend(c10::kCPU);
  EXPECT_EQ(cpu.type(), c10::kCPU);
  EXPECT_EQ(cpu.count(), 1);
  EXPECT_EQ(cpu.numbered(c10::kCPU), c10::Device(c10::kCPU));
  EXPECT_EQ(cpu.hardware_id(c10::kCPU), "");
  EXPECT_FALSE(cpu.copies_beside_compute());
  EXPECT_FALSE(cpu.pins_memory());
  EXPECT_FALSE(cpu.memory(c10::kCPU));
  EXPECT_EQ(cpu.why_no_graph(), "there is no GPU");
  EXPECT_THROW((void)cpu.make_graph(), UsageError);
  EXPECT_TRUE(cpu.supports_autocast(at::kBFloat16));
  EXPECT_FALSE(cpu.supports_autocast(at::kFloat));
  EXPECT_FALSE(cpu.multiplies_float8(c10::kCPU));
  EXPECT_FALSE(adds_in_float(c10::kCPU));
  bool ran = false;
  cpu.on_side_stream([&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(DeviceBackend, GivesTheGeneratorsThatLibtorchDrawsFrom) {
  const std::vector<at::Generator> all = device_backend(c10::kCPU).generators();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0], at::detail::getDefaultCPUGenerator());
  const at::Tensor before = generator_state(all[0]);
  seed_generator(all[0], 77);
  EXPECT_EQ(at::detail::getDefaultCPUGenerator().current_seed(), 77U);
  set_generator_state(all[0], before);
  EXPECT_TRUE(generator_state(all[0]).equal(before));
}

TEST(DeviceBackend, OfCudaAddsInFloatAndSaysWhatCanBeRecorded) {
  const DeviceBackend& cuda = device_backend(c10::kCUDA);
  EXPECT_TRUE(adds_in_float(c10::kCUDA));
  EXPECT_EQ(cuda.noun(), "GPU");
  EXPECT_TRUE(cuda.copies_beside_compute());
  EXPECT_TRUE(cuda.records_collectives("nccl"));
  EXPECT_FALSE(cuda.records_collectives("gloo"));
  EXPECT_EQ(cuda.why_no_graph().empty(), cuda.count() > 0);
  EXPECT_EQ(cuda.pins_memory(), cuda.count() > 0);
}

TEST(DeviceBackend, OfAKindThatNobodyAddedHasNoDevices) {
  const DeviceBackend& meta = device_backend(c10::kMeta);
  EXPECT_EQ(meta.type(), c10::kMeta);
  EXPECT_EQ(meta.count(), 0);
  EXPECT_EQ(meta.noun(), "meta device");
  EXPECT_TRUE(meta.generators().empty());
  EXPECT_EQ(meta.why_no_graph(), "devices of type meta record no graphs");
}

class Ipus final : public DeviceBackend {
 public:
  Ipus() : DeviceBackend(c10::DeviceType::IPU) {}
  int count() const override { return 3; }
  bool adds_in_float() const override { return true; }
};

TEST(DeviceBackend, IsAddedOnce) {
  EXPECT_FALSE(adds_in_float(c10::DeviceType::IPU));
  add_device_backend(std::make_unique<Ipus>());
  EXPECT_EQ(device_backend(c10::DeviceType::IPU).count(), 3);
  EXPECT_TRUE(adds_in_float(c10::DeviceType::IPU));
  const std::vector<VisibleDevices> kinds = visible_devices();
  ASSERT_GE(kinds.size(), 2U);
  EXPECT_EQ(kinds.front().type, c10::kCUDA);
  EXPECT_EQ(kinds.back().type, c10::DeviceType::IPU);
  EXPECT_EQ(kinds.back().count, 3);
  try {
    add_device_backend(std::make_unique<Ipus>());
    ADD_FAILURE() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("there is a backend for devices of type ipu already"));
  }
}

}  // namespace
}  // namespace accelerate::device
