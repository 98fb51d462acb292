// The entry of the tests that fork workers from a process that uses libtorch.
#include <gmock/gmock.h>
#include <unistd.h>

#include "support/numeric_names.h"
#include "support/run_all_tests.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  // A worker that hangs must not hold the caller for ever; the workers die with it.
  alarm(400);
  return accelerate::test::run_all_tests();
}
