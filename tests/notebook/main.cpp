// The entry of the tests that fork workers from a process that uses libtorch.
#include <gmock/gmock.h>
#include <unistd.h>

#include "support/numeric_names.h"
#include "support/run_all_tests.h"

namespace {

// A worker that hangs must not hold the caller for ever; the workers die with it.
struct AlarmOfEachTest : testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { alarm(240); }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new AlarmOfEachTest);
  return accelerate::test::run_all_tests();
}
