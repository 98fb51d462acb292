// The entry of all test programs that fork ranks.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "support/numeric_names.h"
#include "support/run_all_tests.h"

int main(int argc, char** argv) {
  // OpenMP reads this when it is loaded, which was before main() and before any fork: so the
  // program starts itself once more.
  const char* threads = std::getenv("OMP_NUM_THREADS");
  if (threads == nullptr || std::string_view(threads) != "1") {
    setenv("OMP_NUM_THREADS", "1", 1);
    execv(std::filesystem::read_symlink("/proc/self/exe").c_str(), argv);
    std::perror("cannot start this program again with OMP_NUM_THREADS=1");
    return 1;
  }
  testing::InitGoogleMock(&argc, argv);
  return accelerate::test::run_all_tests();
}
