// Two machines, played by two network namespaces with a cable between them. Needs root.
#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "launch/machines.h"
#include "launch/plan/command_line.h"

namespace accelerate::test {
namespace {

using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Network : public Machines {
 protected:
  void SetUp() override {
    if (launch::find_in_path("ip").empty()) GTEST_SKIP() << "ip (iproute2) is not installed";
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    const std::string name = folder_.path().filename().string();  // nobody else has such a folder
    names_ = {name + "-a", name + "-b"};
    for (const std::string& words :
         {"netns add " + names_[0], "netns add " + names_[1],
          "link add cable netns " + names_[0] + " type veth peer name cable netns " + names_[1]}) {
      const std::string error = error_of_ip(words);
      if (lacks_rights(error)) GTEST_SKIP() << "ip " << words << ": " << error;
      ASSERT_EQ(error, "") << "ip " << words;
    }
    for (int machine = 0; machine < 2; ++machine) {
      const std::string in = "-n " + names_[static_cast<size_t>(machine)] + " ";
      ASSERT_TRUE(ip(in + "addr add 10.213.7." + std::to_string(machine + 1) + "/24 dev cable"));
      ASSERT_TRUE(ip(in + "link set lo up"));
      ASSERT_TRUE(ip(in + "link set cable up"));
      // That nobody has an address is known after one second, not after three.
      ASSERT_TRUE(ip(in + "ntable change name arp_cache dev cable mcast_probes 1"));
    }
    address_ = "10.213.7.1";
    port_ = 29'500;  // nobody else is there
  }
  void TearDown() override {
    Machines::TearDown();
    for (const std::string& name : names_) ip("netns del " + name);
  }

  static bool ip(const std::string& words) {
    return std::system(("ip " + words + " 2> /dev/null").c_str()) == 0;
  }
  // What `ip` says when it fails; "" if it does not.
  std::string error_of_ip(const std::string& words) const {
    const std::string answer = (folder_.path() / "answer of ip").string();
    if (std::system(("ip " + words + " > '" + answer + "' 2>&1").c_str()) == 0) return "";
    std::ifstream stream(answer);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    return text.empty() ? "it failed and did not say why" : text;
  }
  // Root inside of a container may not do all that root may.
  static bool lacks_rights(const std::string& error) {
    return error.find("Operation not permitted") != std::string::npos ||
           error.find("Permission denied") != std::string::npos;
  }
  void set_cable(const std::string& state) {
    ASSERT_TRUE(ip("-n " + names_[1] + " link set cable " + state));
  }

  std::unique_ptr<LauncherRun> start_there(int machine, const Setup& setup,
                                           const std::vector<std::string>& program) {
    return start_machine(
        machine, setup, program,
        {.through = {"ip", "netns", "exec", names_[static_cast<size_t>(machine)]}});
  }

  std::vector<std::string> names_;
};

TEST_F(Network, ProgramsOfTheLibraryMeetAcrossTheCable) {
  const Setup setup{.machines = 2, .processes = 4, .flags = {"--same_network"}};
  auto main = start_there(0, setup, {RANK_PROGRAM, "sum"});
  auto other = start_there(1, setup, {RANK_PROGRAM, "sum"});
  const RunResult on_main = main->wait();
  EXPECT_THAT(sorted_lines(on_main.out),
              ElementsAre("rank 0 of 4, local 0 of 2, node 0, restart 0, by torchrun: sum 10",
                          "rank 1 of 4, local 1 of 2, node 0, restart 0, by torchrun: sum 10"))
      << on_main.err;
  EXPECT_THAT(sorted_lines(other->wait().out),
              ElementsAre("rank 2 of 4, local 0 of 2, node 1, restart 0, by torchrun: sum 10",
                          "rank 3 of 4, local 1 of 2, node 1, restart 0, by torchrun: sum 10"));
}

TEST_F(Network, AMainMachineThatComesLateIsWaitedFor) {
  const Setup setup{.machines = 2, .processes = 2};
  auto other = start_there(1, setup, script("echo $RANK"));
  other->wait_for_error("accelerate launch: waiting for the main machine at 10.213.7.1:29500");
  auto main = start_there(0, setup, script("echo $RANK"));
  EXPECT_EQ(main->wait().out, "0\n");
  EXPECT_EQ(other->wait().out, "1\n");
}

TEST_F(Network, ACutCableIsNamedOnBothSides) {
  const Setup setup{.machines = 2, .processes = 2, .flags = {"--rdzv_conf", "machine_timeout=5"}};
  const std::vector<std::string> program = {RANK_PROGRAM, "steps", "100000"};
  auto main = start_there(0, setup, program);
  auto other = start_there(1, setup, program);
  main->wait_for_output("begins");
  other->wait_for_output("begins");
  set_cable("down");
  const RunResult on_main = main->wait();
  const RunResult on_other = other->wait();
  EXPECT_EQ(on_main.exit_code, 75) << on_main.err;
  EXPECT_THAT(on_main.err,
              ContainsRegex("error: machine 1 .[^ ]+. was lost: no sign of life for 5.00 s"));
  EXPECT_EQ(on_other.exit_code, 75) << on_other.err;
  EXPECT_THAT(on_other.err,
              ContainsRegex("error: the main machine at 10.213.7.1:29500 was lost: no "
                            "sign of life for 5.00 s"));
}

TEST_F(Network, AJobGoesOnWhenACutCableIsMended) {
  const Setup setup{.machines = 2,
                    .processes = 2,
                    .flags = {"--rdzv_conf", "machine_timeout=5", "--max_restarts", "2"}};
  const auto program = script(
      "echo restart $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && "
      "exec sleep 600; exit 0");
  auto main = start_there(0, setup, program);
  auto other = start_there(1, setup, program);
  main->wait_for_output("restart 0");
  other->wait_for_output("restart 0");
  set_cable("down");
  main->wait_for_error("accelerate launch: starting again, restart 1 of 2");
  other->wait_for_error("accelerate launch: reconnecting for the next restart");
  set_cable("up");
  const RunResult on_main = main->wait();
  const RunResult on_other = other->wait();
  EXPECT_EQ(on_main.exit_code, 0) << on_main.err;
  EXPECT_EQ(on_other.exit_code, 0) << on_other.err;
  EXPECT_EQ(on_main.out, "restart 0\nrestart 1\n");
  EXPECT_EQ(on_other.out, "restart 0\nrestart 1\n");
}

// Row 6 of docs/faults.md: the main machine on one side, two others on the other.
TEST_F(Network, OfTwoSidesOfACutCableOnlyTheLargerGoesOn) {
  const auto program = script(R"(
echo "restart $TORCHELASTIC_RESTART_COUNT: rank $RANK of $WORLD_SIZE."
[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 600
exit 0)");
  std::vector<std::unique_ptr<LauncherRun>> runs;
  for (int machine = 0; machine < 3; ++machine) {
    std::vector<std::string> words = {"launch",
                                      "--cpu",
                                      "--num_machines",
                                      "1:3",
                                      "--machine_rank",
                                      std::to_string(machine),
                                      "--num_processes",
                                      "3",
                                      "--main_process_ip",
                                      address_,
                                      "--main_process_port",
                                      std::to_string(port_),
                                      "--max_restarts",
                                      "3",
                                      "--grace_period",
                                      "1",
                                      "--rdzv_conf",
                                      "machine_timeout=3,join_timeout=12,last_call_timeout=1"};
    words.insert(words.end(), program.begin(), program.end());
    const std::string& name = names_[machine == 0 ? 0 : 1];
    runs.push_back(start(words, {.through = {"ip", "netns", "exec", name}}));
  }
  for (auto& run : runs) run->wait_for_output("restart 0");
  set_cable("down");
  const RunResult successor = runs[1]->wait();
  const RunResult other = runs[2]->wait();
  EXPECT_EQ(successor.exit_code, 0) << successor.err;
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(successor.out, "restart 0: rank 1 of 3.\nrestart 1: rank 0 of 2.\n");
  EXPECT_EQ(other.out, "restart 0: rank 2 of 3.\nrestart 1: rank 1 of 2.\n");
  const RunResult main = runs[0]->wait();
  EXPECT_EQ(main.exit_code, 75);
  EXPECT_EQ(main.out, "restart 0: rank 0 of 3.\n");
  EXPECT_THAT(main.err, HasSubstr("did not connect within 12.0 s"));
}

TEST_F(Network, AShortInterruptionIsNoLoss) {
  const Setup setup{.machines = 2, .processes = 2, .flags = {"--rdzv_conf", "machine_timeout=20"}};
  const auto program = script("echo ready; until [ -e \"$0.go\" ]; do sleep 0.05; done");
  auto main = start_there(0, setup, program);
  auto other = start_there(1, setup, program);
  main->wait_for_output("ready");
  other->wait_for_output("ready");
  set_cable("down");
  usleep(700'000);  // the interruption itself
  set_cable("up");
  folder_.write("worker.sh.go", "");
  EXPECT_EQ(main->wait().exit_code, 0);
  EXPECT_EQ(other->wait().exit_code, 0);
}

TEST_F(Network, AnAddressThatNobodyHasIsAClearError) {
  address_ = "10.213.7.99";
  const Setup setup{.flags = {"--rdzv_conf", "join_timeout=4"}};
  const RunResult result = start_there(1, setup, script("echo never"))->wait();
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err,
              ContainsRegex("error: the main machine did not answer at 10.213.7.99:29500 "
                            "within 4.00 s: No route to host"));
  EXPECT_THAT(result.err, HasSubstr("check --main_process_ip, the network and the firewall"));
}

TEST_F(Network, AWrongPortIsAClearError) {
  auto main = start_there(0, {.flags = {"--rdzv_conf", "join_timeout=6"}}, script("echo never"));
  port_ = 29'501;
  const RunResult other =
      start_there(1, {.flags = {"--rdzv_conf", "join_timeout=1"}}, script("echo never"))->wait();
  EXPECT_EQ(other.exit_code, 75);
  EXPECT_THAT(other.err, HasSubstr("did not answer at 10.213.7.1:29501 within 1.00 s: Connection "
                                   "refused"));
  EXPECT_THAT(other.err, HasSubstr("the same --main_process_port"));
  const RunResult on_main = main->wait();
  EXPECT_EQ(on_main.exit_code, 75);
  EXPECT_THAT(on_main.err, HasSubstr("error: machine 1 did not connect within 6.00 s\n"));
}

}  // namespace
}  // namespace accelerate::test
