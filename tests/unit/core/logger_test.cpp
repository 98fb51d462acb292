#include <accelerate/communicator.h>
#include <accelerate/errors.h>
#include <accelerate/logger.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/host_name.h"
#include "unit/core/fake_rank.h"

namespace accelerate {
namespace {

class LoggerOfOneProcess : public testing::Test {
 protected:
  Logger logger(LogLevelSetting level, const std::string& name = "train") {
    return {name, state_, communicator_, {.level = level, .stream = &out_}};
  }

  ProcessState state_ = test::fake_rank(0, 1);
  Communicator communicator_{state_, {}};
  std::ostringstream out_;
};

TEST(LogLevels, HaveTheNamesOfThePythonLibrary) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::kDebug);
  EXPECT_EQ(parse_log_level("INFO"), LogLevel::kInfo);
  EXPECT_EQ(parse_log_level("Warn"), LogLevel::kWarning);
  EXPECT_EQ(parse_log_level("WARNING"), LogLevel::kWarning);
  EXPECT_EQ(parse_log_level("error"), LogLevel::kError);
  EXPECT_EQ(parse_log_level("fatal"), LogLevel::kCritical);
  EXPECT_EQ(parse_log_level("critical"), LogLevel::kCritical);
  EXPECT_EQ(parse_log_level("off"), LogLevel::kOff);
  EXPECT_EQ(to_string(LogLevel::kCritical), "critical");
}

TEST(LogLevels, OtherWordsAreRefusedByName) {
  try {
    parse_log_level("loud");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(), "'loud' is not a log level");
    EXPECT_EQ(error.hint(), "use one of debug, info, warning, error, critical, off");
  }
}

TEST_F(LoggerOfOneProcess, WritesLevelNameAndText) {
  Logger log = logger(LogLevel::kDebug);
  log.debug("a");
  log.info("b");
  log.warning("c");
  log.error("d");
  log.critical("e");
  EXPECT_EQ(out_.str(),
            "debug: train: a\ninfo: train: b\nwarning: train: c\nerror: train: d\n"
            "critical: train: e\n");
}

TEST_F(LoggerOfOneProcess, WritesObjectsOfJsonThatAParserReads) {
  Logger log("tra\"in", state_, communicator_,
             {.level = LogLevel::kInfo, .stream = &out_, .format = LogFormat::kJson});
  EXPECT_EQ(log.format(), LogFormat::kJson);
  log.warning("two\nlines \xff");
  const std::string text = out_.str();
  const auto line = nlohmann::json::parse(text);
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["logger"], "tra\"in");
  EXPECT_EQ(line["message"], "two\nlines \xef\xbf\xbd");
  EXPECT_EQ(line["host"], host_name());
  EXPECT_EQ(line["pid"], ::getpid());
  EXPECT_FALSE(line.contains("rank"));
  EXPECT_THAT(line["time"].get<std::string>(), testing::MatchesRegex("20..-..-..T..:..:..[.]...Z"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST(LoggersWithoutAnAccelerator, KnowTheRankThatTheLauncherGave) {
  const std::vector<std::vector<const char*>> launchers = {
      {"RANK"}, {"OMPI_COMM_WORLD_RANK"}, {"PMI_RANK"}, {"SLURM_PROCID", "SLURM_STEP_ID"}};
  std::ostringstream out;
  for (const auto& variables : launchers) {
    for (const char* variable : variables) ::setenv(variable, "3", 1);
    Logger log = get_logger("tools", {.level = "info", .stream = &out});
    log.info(variables[0], {.main_process_only = false});
    log.info("not the main process");
    for (const char* variable : variables) ::unsetenv(variable);
  }
  EXPECT_EQ(out.str(),
            "[rank 3] info: tools: RANK\n[rank 3] info: tools: OMPI_COMM_WORLD_RANK\n"
            "[rank 3] info: tools: PMI_RANK\n[rank 3] info: tools: SLURM_PROCID\n");
  Logger log = get_logger("tools", {.level = "info", .stream = &out});
  try {
    log.info("x", {.in_order = true});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_EQ(error.message(), "this logger knows no other ranks to take turns with");
  }
}

TEST_F(LoggerOfOneProcess, WithoutANameWritesLevelAndText) {
  logger("info", "").info("a");
  EXPECT_EQ(out_.str(), "info: a\n");
}

TEST_F(LoggerOfOneProcess, LeavesOutWhatIsBelowItsLevel) {
  Logger log = logger("error");
  log.warning("a");
  log.error("b");
  log.set_level(LogLevel::kOff);
  log.critical("c");
  log.set_level(LogLevel::kInfo);
  log.debug("d");
  log.info("e");
  EXPECT_EQ(out_.str(), "error: train: b\ninfo: train: e\n");
  EXPECT_TRUE(log.is_enabled_for(LogLevel::kInfo));
  EXPECT_FALSE(log.is_enabled_for(LogLevel::kDebug));
}

TEST_F(LoggerOfOneProcess, TakesTurnsWithItself) {
  logger("info").info("a", {.in_order = true});
  EXPECT_EQ(out_.str(), "info: train: a\n");
}

TEST_F(LoggerOfOneProcess, SaysAWarningOnceAndAnotherOneToo) {
  Logger log = logger("warning");
  Logger copy = log;
  log.warning_once("slow");
  log.warning_once("slow");
  copy.warning_once("slow");
  log.warning_once("hot");
  log.warning("slow");
  EXPECT_EQ(out_.str(), "warning: train: slow\nwarning: train: hot\nwarning: train: slow\n");
}

TEST_F(LoggerOfOneProcess, OffIsNoLevelToWriteAt) {
  Logger log = logger("debug");
  EXPECT_THROW(log.log(LogLevel::kOff, "a"), UsageError);
  EXPECT_EQ(out_.str(), "");
}

TEST_F(LoggerOfOneProcess, TakesStateAndGroupFromAnAccelerator) {
  struct Accelerator {
    const ProcessState& state() const { return process; }
    Communicator& communicator() const { return *group; }
    ProcessState process;
    Communicator* group;
  };
  Logger log("train", Accelerator{state_, &communicator_}, {.level = "info", .stream = &out_});
  log.info("a");
  EXPECT_EQ(out_.str(), "info: train: a\n");
  EXPECT_EQ(log.name(), "train");
  EXPECT_EQ(log.level(), LogLevel::kInfo);
}

}  // namespace
}  // namespace accelerate
