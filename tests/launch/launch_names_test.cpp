// A main machine whose name the resolver does not know, or not soon.
#include <gmock/gmock.h>
#include <signal.h>

#include "launch/machines.h"

namespace accelerate::test {
namespace {

using ::testing::HasSubstr;

class Names : public Machines {
 protected:
  std::unique_ptr<LauncherRun> start_member(const std::string& main_name, const Setup& setup) {
    address_ = main_name;
    return start_machine(1, setup, script("echo $RANK"),
                         {.environment = {{"LD_PRELOAD", SLOW_RESOLVER},
                                          {"ASAN_OPTIONS", "verify_asan_link_order=0"}}});
  }
  std::string endpoint() const { return address_ + ":" + std::to_string(port_); }
};

TEST_F(Names, AResolverThatNeverAnswersDoesNotMoveTheTimeout) {
  auto member = start_member("never.invalid", {.flags = {"--rdzv_conf", "join_timeout=1"}});
  const RunResult result = member->wait();
  EXPECT_EQ(result.exit_code, 75) << result.err;
  EXPECT_THAT(result.err, HasSubstr("error: the main machine did not answer at " + endpoint() +
                                    " within 1.00 s: its name is still being looked up\n"));
}

TEST_F(Names, AStopSignalDoesNotWaitForTheResolver) {
  auto member = start_member("never.invalid", {});
  member->wait_for_error("waiting for the main machine at " + endpoint() +
                         ": its name is still being looked up\n");
  member->signal(SIGINT);
  EXPECT_EQ(member->wait().exit_code, 128 + SIGINT);
}

TEST_F(Names, AMainMachineIsFoundWhenItsNameIs) {
  const Setup setup{.machines = 2, .processes = 2};
  auto main = start_machine(0, setup, script("echo $RANK"));
  auto member = start_member("slow.invalid", setup);
  const RunResult on_member = member->wait();
  EXPECT_EQ(on_member.out, "1\n") << on_member.err;
  EXPECT_EQ(main->wait().out, "0\n");
}

TEST_F(Names, ANameThatNobodyKnowsIsAClearError) {
  auto member = start_member("nobody.invalid", {.flags = {"--rdzv_conf", "join_timeout=1"}});
  const RunResult result = member->wait();
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("error: the main machine did not answer at " + endpoint() +
                                    " within 1.00 s: "));
  EXPECT_THAT(result.err, HasSubstr("check --main_process_ip"));
}

}  // namespace
}  // namespace accelerate::test
