// A program of the library that is started anew goes on from its newest complete checkpoint.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "launch/launcher_run.h"

namespace accelerate::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

struct ResumedTraining : Launcher {
  RunResult train(const std::string& project, std::vector<std::string> kills) {
    std::vector<std::string> words = {
        "launch",         "--cpu", "--num_processes", "2",
        "--max_restarts", "2",     RESUME_PROGRAM,    (folder_.path() / project).string()};
    words.insert(words.end(), kills.begin(), kills.end());
    return run(words);
  }
};

// The sorted lines that hold `text`.
std::vector<std::string> lines_with(const std::string& text, const std::string& all) {
  std::vector<std::string> lines = sorted_lines(all);
  std::erase_if(lines,
                [&](const std::string& line) { return line.find(text) == std::string::npos; });
  return lines;
}

TEST_F(ResumedTraining, EqualsTheOneWithoutFailuresBitForBit) {
  const RunResult undisturbed = train("undisturbed", {});
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.err;
  const std::vector<std::string> learned = lines_with("has learned", undisturbed.out);
  ASSERT_THAT(learned, SizeIs(2));

  // Between two saves, then in the middle of the third one: what it leaves is no checkpoint.
  const RunResult disturbed = train("disturbed", {"1:5:0", "1:9:1"});
  ASSERT_EQ(disturbed.exit_code, 0) << disturbed.err;
  EXPECT_THAT(
      lines_with("begins", disturbed.out),
      ElementsAre("rank 0 begins restart 0 at step 0", "rank 0 begins restart 1 at step 3",
                  "rank 0 begins restart 2 at step 6", "rank 1 begins restart 0 at step 0",
                  "rank 1 begins restart 1 at step 3", "rank 1 begins restart 2 at step 6"));
  EXPECT_THAT(disturbed.err, HasSubstr("starting again, restart 2 of 2\n"));
  EXPECT_EQ(lines_with("has learned", disturbed.out), learned);
}

TEST_F(ResumedTraining, BeginsFromTheStartWhereNothingWasSavedYet) {
  const std::vector<std::string> learned = lines_with("has learned", train("undisturbed", {}).out);
  ASSERT_THAT(learned, SizeIs(2));
  const RunResult disturbed = train("disturbed", {"0:2:0"});
  ASSERT_EQ(disturbed.exit_code, 0) << disturbed.err;
  EXPECT_THAT(
      lines_with("begins restart 1", disturbed.out),
      ElementsAre("rank 0 begins restart 1 at step 0", "rank 1 begins restart 1 at step 0"));
  EXPECT_EQ(lines_with("has learned", disturbed.out), learned);
}

}  // namespace
}  // namespace accelerate::test
