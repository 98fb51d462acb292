// For test programs that fork no ranks: gets the device of the tests ready before the first of
// them.
#pragma once

#include <gtest/gtest.h>

#include "support/test_device.h"

namespace accelerate::test {

struct DeviceEnvironment : testing::Environment {
  void SetUp() override { (void)test_device(); }
};

inline testing::Environment* const kDeviceEnvironment =
    testing::AddGlobalTestEnvironment(new DeviceEnvironment);

}  // namespace accelerate::test
