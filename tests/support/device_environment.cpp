// Part of every test program with libtorch that forks no ranks: gets the device of the tests ready
// before the first of them, and lets each draw the same random numbers each time, whatever ran
// before it.
#include <gtest/gtest.h>

#include "support/test_device.h"

namespace accelerate::test {
namespace {

struct DeviceEnvironment : testing::Environment {
  struct Seeds : testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo&) override { seed_tests(1); }
  };

  void SetUp() override {
    (void)test_device();
    testing::UnitTest::GetInstance()->listeners().Append(new Seeds);
  }
};

[[maybe_unused]] const testing::Environment* const kDeviceEnvironment =
    testing::AddGlobalTestEnvironment(new DeviceEnvironment);

}  // namespace
}  // namespace accelerate::test
