// Programs of the library started by torchrun, from the Python wheel.
#include <gmock/gmock.h>

#include <filesystem>

#include "launch/launcher_run.h"

namespace accelerate::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TorchrunRuns : public Launcher {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(TORCHRUN)) GTEST_SKIP() << "there is no " << TORCHRUN;
  }
  RunResult torchrun(const std::vector<std::string>& words) {
    std::vector<std::string> command = {TORCHRUN, "--no-python", "--rdzv-backend=c10d",
                                        "--rdzv-endpoint=127.0.0.1:0"};
    command.insert(command.end(), words.begin(), words.end());
    return run(command, {.as_is = true});
  }
};

TEST_F(TorchrunRuns, AProgramOfTheLibraryKnowsItsPlace) {
  const RunResult result = torchrun({"--nproc-per-node=2", RANK_PROGRAM, "sum"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("rank 0 of 2, local 0 of 2, node 0, restart 0, by torchrun: sum 3",
                          "rank 1 of 2, local 1 of 2, node 0, restart 0, by torchrun: sum 3"));
}

TEST_F(TorchrunRuns, ARestartedProgramGoesOnWhereItWas) {
  const RunResult result =
      torchrun({"--nproc-per-node=2", "--max-restarts=1", "--monitor-interval=0.1", RANK_PROGRAM,
                "steps", "8", "--resume", folder_.path().string(), "1:3:0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("rank 0 begins restart 1 at step 4\n"));
  EXPECT_THAT(result.out, HasSubstr("rank 1 ended at step 8\n"));
}

}  // namespace
}  // namespace accelerate::test
