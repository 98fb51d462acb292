// The launcher in front of a user.
#include <gmock/gmock.h>
#include <signal.h>

#include "launch/launcher_run.h"

namespace accelerate::test {
namespace {

using ::testing::HasSubstr;

const RunOptions kTerminal{.in_terminal = true};

TEST_F(Launcher, WorkersSeeTheTerminalOfTheLauncher) {
  auto run = start_script(1, "[ -t 1 ] && [ -t 2 ] && echo $(stty size <&2)", {}, kTerminal);
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "50 123\r\n");
}

TEST_F(Launcher, WorkersSeeTheTerminalChangeItsSize) {
  auto run = start_script(1, R"sh(
echo ready
until [ "$(stty size <&2)" = '40 77' ]; do sleep 0.02; done)sh",
                          {}, kTerminal);
  run->wait_for_output("ready");
  run->resize_terminal(40, 77);
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "ready\r\n");
}

TEST_F(Launcher, WhatRankZeroDrawsAndPrintsArrivesInItsOrder) {
  auto run = start_script(2, R"sh(
[ $RANK = 1 ] && exit
i=0
while [ $i -lt 200 ]; do
  printf '\rbar %s' $i >&2
  printf '\r\033[Jline %s\n' $i
  i=$((i+1))
done)sh",
                          {}, kTerminal);
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 0);
  std::string wanted;
  for (int i = 0; i < 200; ++i) {
    wanted += "\rbar " + std::to_string(i) + "\r\x1b[Jline " + std::to_string(i) + "\r\n";
  }
  EXPECT_EQ(result.out, wanted);
}

TEST_F(Launcher, LinesOfOtherRanksAndOfTheLauncherStandAboveTheBar) {
  auto run = start_script(2, R"sh(
if [ $RANK = 1 ]; then
  until [ -e "$0.drawn" ]; do sleep 0.02; done
  echo other
  exec sleep 600
fi
printf '\r50%%' >&2
touch "$0.drawn"
exec sleep 600)sh",
                          {}, kTerminal);
  run->wait_for_output("\r50%\r\x1b[Jother\r\n\r50%");
  run->type("\x03");
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  // The terminal itself shows ^C.
  EXPECT_THAT(result.out, HasSubstr("\r50%^C\r\naccelerate launch: stopped by SIGINT\r\n"));
}

TEST_F(Launcher, PrefixedWorkersDrawNoBars) {
  auto run = start_script(1, "[ -t 2 ] || echo plain", {"--prefix_output"}, kTerminal);
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "[rank 0] plain\r\n");
}

TEST_F(Launcher, RankZeroReadsFromTheTerminal) {
  auto run = start_script(
      2, "[ $RANK = 1 ] && exit; printf 'name? '; read -r name; echo \"hi $name\"", {}, kTerminal);
  run->wait_for_output("name? ");
  run->type("ada\n");
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("hi ada"));
}

TEST_F(Launcher, ControlCInTheTerminalStopsAllRanks) {
  auto run = start_script(3, "echo ready; exec sleep 600", {}, kTerminal);
  run->wait_for_output("ready", 3);
  run->type("\x03");
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_THAT(result.out, HasSubstr("ranks 0, 1 and 2 were stopped"));
}

TEST_F(Launcher, ASignalToTheLauncherInATerminalStopsAllRanks) {
  auto run = start_script(2, "echo ready; exec sleep 600", {}, kTerminal);
  run->wait_for_output("ready", 2);
  run->signal(SIGTERM);
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_THAT(result.out, HasSubstr("ranks 0 and 1 were stopped"));
}

TEST_F(Launcher, TheLastLinesOfAFailingWorkerReachTheTerminal) {
  auto run = start_script(2, "[ $RANK = 1 ] && exec sleep 600; seq 1 5000; echo the end; exit 3",
                          {}, kTerminal);
  const RunResult result = run->wait();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, HasSubstr("\r\n5000\r\nthe end\r\n"));
  EXPECT_THAT(result.out, HasSubstr("    | the end\r\n"));
}

}  // namespace
}  // namespace accelerate::test
