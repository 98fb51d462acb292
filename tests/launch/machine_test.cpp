#include "launch/plan/machine.h"

#include <gtest/gtest.h>

namespace accelerate::launch {
namespace {

TEST(Machine, CountsTheDevicesThatCudaVisibleDevicesNames) {
  EXPECT_EQ(count_visible_devices(""), 0);
  EXPECT_EQ(count_visible_devices("0"), 1);
  EXPECT_EQ(count_visible_devices("2,0,7"), 3);
  EXPECT_EQ(count_visible_devices("GPU-1a2b,MIG-3c4d"), 2);
}

TEST(Machine, ReadsCudaVisibleDevicesUpToTheFirstInvalidOne) {
  EXPECT_EQ(count_visible_devices("-1"), 0);
  EXPECT_EQ(count_visible_devices("0,1,-1,2"), 2);
}

}  // namespace
}  // namespace accelerate::launch
