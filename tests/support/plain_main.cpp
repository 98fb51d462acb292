// The entry of all test programs that fork no ranks.
#include <gmock/gmock.h>

#include "support/run_all_tests.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  return accelerate::test::run_all_tests();
}
