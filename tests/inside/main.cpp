// The entry of the tests that fork workers from a process that uses libtorch.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>

int main(int argc, char** argv) {
  // c10d looks up the names of the workers that connect; no name server is to be waited for.
  setenv("RES_OPTIONS", "timeout:1 attempts:0", 1);
  testing::InitGoogleMock(&argc, argv);
  // A worker that hangs must not hold the caller for ever; the workers die with it.
  alarm(400);
  return RUN_ALL_TESTS();
}
