// What the self-test prints, and what it compares with.
#include "selftest/report.h"

#include <accelerate/errors.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "selftest/arguments.h"
#include "selftest/expect.h"

namespace accelerate::test {
namespace {

using selftest::CheckResult;
using selftest::parse_arguments;
using selftest::Status;
using selftest::TickList;
using testing::HasSubstr;

using std::chrono::milliseconds;

TEST(Colours, AreForTerminalsButNotForThoseThatOpenMpiMakesUp) {
  int terminal = -1;
  int program_side = -1;
  ASSERT_EQ(openpty(&terminal, &program_side, nullptr, nullptr, nullptr), 0);
  unsetenv("NO_COLOR");
  setenv("TERM", "xterm", 1);
  EXPECT_TRUE(selftest::wants_colours(program_side));
  setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  EXPECT_FALSE(selftest::wants_colours(program_side));
  unsetenv("OMPI_COMM_WORLD_RANK");
  close(program_side);
  close(terminal);
}

CheckResult passed() {
  return {.family = "data",
          .name = "every sample once",
          .detail = "27 samples",
          .metrics = {{"speed", 2.5}},
          .duration = milliseconds(12)};
}
CheckResult skipped() {
  return {.family = "data",
          .name = "dispatched batches",
          .status = Status::kSkipped,
          .detail = "no such device",
          .duration = milliseconds(1)};
}
CheckResult failed() {
  return {.family = "training",
          .name = "gradient accumulation",
          .status = Status::kFailed,
          .failures = {{.rank = 1, .text = "sum: expected 3,\ngot 4"}},
          .duration = milliseconds(1500)};
}

TEST(SelftestReport, ListsChecksByFamilyWithTickDurationAndDetail) {
  TickList list(2, false);
  EXPECT_EQ(list.lines(passed()),
            "data\n"
            "  ✓ every sample once                12 ms  27 samples\n");
  EXPECT_EQ(list.lines(skipped()),
            "  - dispatched batches                1 ms  skipped: no such device\n");
  EXPECT_EQ(list.lines(failed()),
            "\n"
            "training\n"
            "  ✗ gradient accumulation            1.5 s\n"
            "      rank 1 of 2: sum: expected 3,\n"
            "      got 4\n");
  EXPECT_EQ(list.summary({passed(), skipped(), failed()}),
            "1 passed, 1 skipped, 1 failed in 1.5 s");
  EXPECT_EQ(list.summary({passed()}), "1 passed in 12 ms");
}

TEST(SelftestReport, DetailsAreBrokenBetweenWordsWhereTheListIsNarrow) {
  TickList list(2, false, 72);
  CheckResult result = passed();
  result.detail = "4 batches on each rank; metrics see · once";
  EXPECT_EQ(list.lines(result),
            "data\n"
            "  ✓ every sample once                12 ms  4 batches on each rank;\n"
            "                                            metrics see · once\n");
  EXPECT_EQ(list.lines(skipped()),
            "  - dispatched batches                1 ms  skipped: no such device\n");
}

TEST(SelftestReport, ColoursTicksOnRequest) {
  TickList list(2, true);
  EXPECT_THAT(list.lines(passed()), HasSubstr("\x1b[32m✓\x1b[0m"));
  EXPECT_THAT(list.lines(failed()), HasSubstr("\x1b[31m✗\x1b[0m"));
}

TEST(SelftestReport, JsonHoldsAllThatTheListDoes) {
  const ProcessState state = ProcessState::read([](const char*) { return std::nullopt; }, 0, {});
  const auto json = nlohmann::json::parse(selftest::to_json(state, {passed(), failed()}));
  EXPECT_EQ(json["passed"], false);
  EXPECT_EQ(json["world_size"], 1);
  EXPECT_EQ(json["device"], "cpu");
  ASSERT_EQ(json["checks"].size(), 2u);
  EXPECT_EQ(json["checks"][0]["status"], "passed");
  EXPECT_EQ(json["checks"][0]["metrics"]["speed"], 2.5);
  EXPECT_EQ(json["checks"][1]["family"], "training");
  EXPECT_EQ(json["checks"][1]["failures"][0]["rank"], 1);
  EXPECT_EQ(json["checks"][1]["failures"][0]["message"], "sum: expected 3,\ngot 4");
  EXPECT_DOUBLE_EQ(json["checks"][1]["seconds"], 1.5);
}

TEST(SelftestReport, SkippedChecksDoNotFailTheTest) {
  EXPECT_TRUE(selftest::all_passed({passed(), skipped()}));
  EXPECT_FALSE(selftest::all_passed({passed(), failed()}));
}

TEST(SelftestArguments, AreReadInBothSpellings) {
  const auto spaced = parse_arguments({"--json", "--timeout", "7", "--folder", "a b"});
  EXPECT_TRUE(spaced.json);
  EXPECT_EQ(spaced.timeout, std::chrono::seconds(7));
  EXPECT_EQ(spaced.folder, "a b");
  const auto joined = parse_arguments({"--timeout=9", "--folder=x=y"});
  EXPECT_FALSE(joined.json);
  EXPECT_EQ(joined.timeout, std::chrono::seconds(9));
  EXPECT_EQ(joined.folder, "x=y");
}

TEST(SelftestArguments, WhatIsWrongIsNamed) {
  const auto refusal = [](std::vector<std::string> words) -> std::string {
    try {
      parse_arguments(words);
    } catch (const ConfigError& error) {
      return error.message() + " at " + error.where();
    }
    return "nothing was refused";
  };
  EXPECT_EQ(refusal({"--jason"}), "accelerate-selftest does not know this argument at --jason");
  EXPECT_EQ(refusal({"--json=1"}), "accelerate-selftest does not know this argument at --json=1");
  EXPECT_EQ(refusal({"--timeout"}), "it needs a value at --timeout");
  EXPECT_EQ(refusal({"--timeout", "0"}), "'0' is not a number of seconds at --timeout");
  EXPECT_EQ(refusal({"--timeout=2m"}), "'2m' is not a number of seconds at --timeout");
}

TEST(SelftestExpect, AMismatchShowsBothSides) {
  const auto text = [](auto compare) -> std::string {
    try {
      compare();
    } catch (const selftest::Mismatch& mismatch) {
      return mismatch.what();
    }
    return "nothing differs";
  };
  using namespace selftest;
  EXPECT_EQ(text([] {
              expect_same("x", torch::tensor({1, 2}), torch::tensor({1, 3}));
            }),
            "x: expected [1, 3], got [1, 2]");
  EXPECT_EQ(text([] { expect_same("x", torch::ones({1}), torch::ones({1}, at::kLong)); }),
            "x: expected Long, got Float");
  EXPECT_EQ(text([] {
              expect_same("x", torch::ones({1, 2}), torch::ones({2}));
            }),
            "x: expected [1, 1], got [1, 1] of shape [1, 2]");
  EXPECT_EQ(text([] { expect_near("x", torch::tensor(1.5), torch::tensor(1.0), 1e-3); }),
            "x: expected 1 within 0.001, got 1.5");
  EXPECT_EQ(text([] { expect_near("x", torch::tensor(NAN), torch::tensor(1.0), 1e-3); }),
            "x: expected 1 within 0.001, got nan");
  EXPECT_EQ(text([] { expect_near("x", torch::tensor(1.0005), torch::tensor(1.0), 1e-3); }),
            "nothing differs");
  EXPECT_EQ(text([] { expect_equal("x", std::vector<int>(10, 7), std::vector<int>{}); }),
            "x: expected [], got [7, 7, 7, 7, 7, 7, 7, 7, ... 2 more]");
  EXPECT_EQ(text([] { expect_true("it holds", false); }), "expected that it holds");
}

}  // namespace
}  // namespace accelerate::test
