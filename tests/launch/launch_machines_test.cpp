// Jobs on several machines, which here are several launchers on one.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "launch/machines.h"

namespace accelerate::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string exit_codes(std::initializer_list<RunResult> results) {
  std::string text;
  for (const RunResult& result : results) text += std::to_string(result.exit_code) + " ";
  return text;
}

// This test listens where launchers look for the main machine.
class Impostor : public Machines {
 protected:
  UniqueFd listen_instead() const {
    UniqueFd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port_));
    const int on = 1;  // connections of the tests before may linger
    setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    EXPECT_EQ(bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(server.get(), 8), 0);
    return server;
  }
  // Waits until some launcher looks, and leaves the port to the real main machine.
  void await_a_connection() const {
    const UniqueFd server = listen_instead();
    pollfd guest{server.get(), POLLIN, 0};
    ASSERT_EQ(poll(&guest, 1, static_cast<int>(kDeadline.count()) * 1000), 1);
  }
};

TEST_F(Machines, RanksAreCountedOverAllMachines) {
  const Setup setup{.machines = 3, .processes = 6};
  const auto program = script("echo $RANK $LOCAL_RANK $NODE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE");
  auto second = start_machine(2, setup, program);
  auto first = start_machine(1, setup, program);
  auto main = start_machine(0, setup, program);
  EXPECT_THAT(sorted_lines(main->wait().out), ElementsAre("0 0 0 6 2", "1 1 0 6 2"));
  EXPECT_THAT(sorted_lines(first->wait().out), ElementsAre("2 0 1 6 2", "3 1 1 6 2"));
  EXPECT_THAT(sorted_lines(second->wait().out), ElementsAre("4 0 2 6 2", "5 1 2 6 2"));
}

TEST_F(Machines, ProgramsOfTheLibraryMeet) {
  const Setup setup{.machines = 2, .processes = 4};
  const std::vector<std::string> program = {RANK_PROGRAM, "sum"};
  auto other = start_machine(1, setup, program);
  auto main = start_machine(0, setup, program);
  EXPECT_THAT(sorted_lines(main->wait().out),
              ElementsAre("rank 0 of 4, local 0 of 2, node 0, restart 0, by torchrun: sum 10",
                          "rank 1 of 4, local 1 of 2, node 0, restart 0, by torchrun: sum 10"));
  EXPECT_THAT(sorted_lines(other->wait().out),
              ElementsAre("rank 2 of 4, local 0 of 2, node 1, restart 0, by torchrun: sum 10",
                          "rank 3 of 4, local 1 of 2, node 1, restart 0, by torchrun: sum 10"));
}

TEST_F(Machines, AFailureOnOneMachineStopsAllAndIsToldOnAll) {
  const Setup setup{.machines = 2, .processes = 4};
  const auto program = script(R"(
echo ready
[ $RANK = 3 ] || exec sleep 600
while [ ! -e "$0.go" ]; do sleep 0.05; done
echo no disk >&2
exit 9)");
  auto [main, other] = start_both(setup, program);
  folder_.write("worker.sh.go", "");
  const RunResult on_main = main->wait();
  const RunResult on_other = other->wait();
  EXPECT_EQ(exit_codes({on_main, on_other}), "9 9 ");
  EXPECT_THAT(on_main.err, ContainsRegex("^error: rank 3 of 4 on [^ ]+ exited with status 9"));
  EXPECT_THAT(on_main.err, HasSubstr("    | no disk\n"));
  EXPECT_THAT(on_main.err, HasSubstr("  ranks 0, 1 and 2 were stopped\n"));
  EXPECT_THAT(on_other.err, ContainsRegex("error: rank 3 of 4 on [^ ]+ exited with status 9"));
}

TEST_F(Machines, AllMachinesBeginAnewTogetherAndGoOnWhereTheyWere) {
  const Setup setup{.machines = 2, .processes = 2, .flags = {"--max_restarts", "2"}};
  const std::vector<std::string> program = {
      RANK_PROGRAM, "steps", "12", "--resume", folder_.path().string(), "1:6:0"};
  auto main = start_machine(0, setup, program);
  auto other = start_machine(1, setup, program);
  const RunResult on_main = main->wait();
  const RunResult on_other = other->wait();
  EXPECT_EQ(exit_codes({on_main, on_other}), "0 0 ");
  EXPECT_EQ(on_main.out,
            "rank 0 begins restart 0 at step 0\n"
            "rank 0 begins restart 1 at step 7\n"
            "rank 0 ended at step 12\n");
  EXPECT_EQ(on_other.out,
            "rank 1 begins restart 0 at step 0\n"
            "rank 1 begins restart 1 at step 7\n"
            "rank 1 ended at step 12\n");
  EXPECT_THAT(on_main.err,
              HasSubstr("  it said: std::runtime_error: the loss is not a number at step 6\n"));
  EXPECT_THAT(on_main.err, HasSubstr("accelerate launch: starting again, restart 1 of 2\n"));
  EXPECT_THAT(on_other.err, HasSubstr("accelerate launch: starting again, restart 1 of 2\n"));
}

TEST_F(Machines, AStopSignalToOneLauncherStopsAll) {
  const Setup setup{.machines = 2, .processes = 2};
  const auto program =
      script("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done");
  auto [main, other] = start_both(setup, program);
  other->signal(SIGTERM);
  const RunResult on_main = main->wait();
  const RunResult on_other = other->wait();
  EXPECT_EQ(exit_codes({on_main, on_other}), "143 143 ");
  EXPECT_EQ(on_main.out, "ready\nsaved\n");
  EXPECT_EQ(on_other.out, "ready\nsaved\n");
  EXPECT_THAT(on_main.err, HasSubstr("accelerate launch: stopped by SIGTERM\n"));
}

TEST_F(Machines, AKilledLauncherIsNamedAsALostMachine) {
  const Setup setup{.machines = 2, .processes = 4};
  const auto program = script("echo ready; exec sleep 600");
  auto [main, other] = start_both(setup, program);
  other->signal(SIGKILL);
  const RunResult on_main = main->wait();
  EXPECT_EQ(on_main.exit_code, 75);
  EXPECT_THAT(on_main.err, ContainsRegex("^error: machine 1 .[^ ]+. was lost: "));
  EXPECT_THAT(on_main.err, HasSubstr("  ranks 0 and 1 were stopped\n"));
  EXPECT_EQ(other->wait().exit_code, 128 + SIGKILL);
}

TEST_F(Machines, AKilledMainLauncherEndsTheOthers) {
  const Setup setup{.machines = 2, .processes = 2, .flags = {"--max_restarts", "3"}};
  const auto program = script("echo ready; exec sleep 600");
  auto [main, other] = start_both(setup, program);
  main->signal(SIGKILL);
  const RunResult on_other = other->wait();
  EXPECT_EQ(on_other.exit_code, 75);
  EXPECT_THAT(on_other.err,
              ContainsRegex("error: the main machine at 127.0.0.1:" + std::to_string(port_) +
                            " was lost: (its connection ended|Connection reset by peer)\n"));
  EXPECT_EQ(main->wait().exit_code, 128 + SIGKILL);
}

TEST_F(Machines, ALostMachineThatIsStartedAgainTakesPartInTheRestart) {
  const Setup setup{.machines = 2, .processes = 2, .flags = {"--max_restarts", "1"}};
  const auto program = script(
      "echo restart $TORCHELASTIC_RESTART_COUNT; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || "
      "exec sleep 600");
  auto main = start_machine(0, setup, program);
  auto lost = start_machine(1, setup, program);
  main->wait_for_output("restart 0");
  lost->wait_for_output("restart 0");
  lost->signal(SIGKILL);
  lost->wait();
  auto back = start_machine(1, setup, program);
  const RunResult on_main = main->wait();
  const RunResult on_back = back->wait();
  EXPECT_EQ(exit_codes({on_main, on_back}), "0 0 ");
  EXPECT_EQ(on_main.out, "restart 0\nrestart 1\n");
  EXPECT_EQ(on_back.out, "restart 1\n");
}

TEST_F(Machines, AMainMachineThatComesLateIsWaitedFor) {
  const Setup setup{.machines = 2, .processes = 2};
  const auto program = script("echo $RANK");
  auto other = start_machine(1, setup, program);
  other->wait_for_error("accelerate launch: waiting for the main machine at 127.0.0.1:" +
                        std::to_string(port_) + ": Connection refused\n");
  auto main = start_machine(0, setup, program);
  EXPECT_EQ(main->wait().out, "0\n");
  EXPECT_EQ(other->wait().out, "1\n");
}

TEST_F(Machines, AMainMachineThatNeverComesIsAClearError) {
  const Setup setup{.flags = {"--rdzv_conf", "join_timeout=0.5"}};
  const RunResult result = start_machine(1, setup, script("echo never"))->wait();
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "error: the main machine did not answer at 127.0.0.1:" + std::to_string(port_) +
                " within 500 ms: Connection refused\n"
                "  try  check that accelerate launch runs there with --machine_rank 0 "
                "and the same --main_process_port\n");
}

TEST_F(Impostor, AMachineThatNeverComesIsNamed) {
  const Setup setup{.machines = 3, .processes = 3, .flags = {"--rdzv_conf", "join_timeout=5"}};
  Setup patient = setup;
  patient.flags.back() = "join_timeout=600";
  // The main machine starts when the other one already tries to connect.
  auto second = start_machine(2, patient, script("echo never"));
  await_a_connection();
  auto main = start_machine(0, setup, script("echo never"));
  const RunResult on_main = main->wait();
  EXPECT_EQ(exit_codes({on_main, second->wait()}), "75 75 ");
  EXPECT_THAT(on_main.err, HasSubstr("error: machine 1 did not connect within 5.00 s\n"));
  EXPECT_EQ(on_main.out, "");
}

TEST_F(Machines, AMachineWithAnotherWorldSizeIsRefusedOnBothSides) {
  auto main = start_machine(0, {.machines = 2, .processes = 4}, script("echo never"));
  const RunResult on_other =
      start_machine(1, {.machines = 2, .processes = 2}, script("echo never"))->wait();
  EXPECT_EQ(on_other.exit_code, 2);
  EXPECT_THAT(
      on_other.err,
      ContainsRegex("refused this one\n  at   machine 1 .* was started with --num_processes 2, "
                    "the main machine with 4\n"));
  // At once, long before it gives up.
  main->wait_for_error("was started with --num_processes 2, the main machine with 4\n");
  EXPECT_THAT(main->err(), HasSubstr("accelerate launch: refused: machine 1 ("));
  main->signal(SIGTERM);
  EXPECT_EQ(main->wait().exit_code, 128 + SIGTERM);
}

TEST_F(Machines, TwoMachinesWithOneRankAreRefusedByName) {
  const Setup setup{.machines = 3, .processes = 3};
  const auto program = script("echo $RANK");
  auto main = start_machine(0, setup, program);
  auto first = start_machine(1, setup, program, {.environment = {{"WHICH", "first"}}});
  auto second = start_machine(1, setup, program);
  // One of the two is in; which, depends on who came first. The job begins only now.
  main->wait_for_error("accelerate launch: refused: machine 1 (");
  auto third = start_machine(2, setup, program);
  const RunResult a = first->wait();
  const RunResult b = second->wait();
  EXPECT_EQ(a.exit_code + b.exit_code, 2) << a.err << b.err;
  EXPECT_THAT(a.err + b.err, HasSubstr("claims --machine_rank 1, which 127.0.0.1 has already"));
  EXPECT_EQ(main->wait().exit_code, 0);
  EXPECT_EQ(third->wait().exit_code, 0);
}

TEST_F(Machines, AProgramThatIsMissingOnOneMachineStopsAll) {
  const Setup setup{.machines = 2, .processes = 2};
  const std::string here = folder_.write("here", "#!/bin/sh\nexec sleep 600\n", true);
  const std::string broken = folder_.write("broken", "#!/no/such/interpreter\n", true);
  auto main = start_machine(0, setup, {here});
  const RunResult on_other = start_machine(1, setup, {broken})->wait();
  const RunResult on_main = main->wait();
  EXPECT_EQ(exit_codes({on_main, on_other}), "127 127 ");
  EXPECT_THAT(on_main.err, HasSubstr("  it said: cannot run '" + broken + "'"));
}

TEST_F(Impostor, AnythingElseAtThePortIsNoLauncher) {
  const UniqueFd server = listen_instead();
  std::atomic<bool> is_over = false;
  std::thread impostor([&] {
    while (!is_over) {
      pollfd waiting{server.get(), POLLIN, 0};
      if (poll(&waiting, 1, 20) <= 0) continue;
      const UniqueFd guest(accept4(server.get(), nullptr, nullptr, SOCK_CLOEXEC));
      [[maybe_unused]] const auto sent = send(guest.get(), "SSH-2.0-OpenSSH\r\n", 17, MSG_NOSIGNAL);
    }
  });
  const Setup setup{.flags = {"--rdzv_conf", "join_timeout=1"}};
  const RunResult on_other = start_machine(1, setup, script("echo never"))->wait();
  is_over = true;
  impostor.join();
  EXPECT_EQ(on_other.exit_code, 75);
  EXPECT_THAT(on_other.err, HasSubstr("error: the main machine did not answer at "));

  const RunResult on_main = start_machine(0, setup, script("echo never"))->wait();
  EXPECT_EQ(on_main.exit_code, 2);
  EXPECT_THAT(on_main.err, StartsWith("error: port " + std::to_string(port_) +
                                      " is in use by another process\n"));
}

TEST_F(Machines, StrangersAtThePortOfTheMainMachineDoNoHarm) {
  const Setup setup{.machines = 2, .processes = 2};
  const auto program = script("echo $RANK");
  auto main = start_machine(0, setup, program, {});
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port_));
  const std::string half_a_word(3'000'000, 'a');
  for (const std::string& words :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("hello machine=1\n"),
        std::string("hello version=1 machine=-5 machines=2 processes=2\n"),
        std::string("ended attempt=0\n"), half_a_word}) {
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (true) {
      const UniqueFd stranger(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(stranger.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
        send(stranger.get(), words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        break;
      }
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  auto other = start_machine(1, setup, program);
  EXPECT_EQ(main->wait().out, "0\n");
  EXPECT_EQ(other->wait().out, "1\n");
}

TEST_F(Machines, TheSameNetworkMeansAnAddressOfTheMainMachine) {
  address_ = "192.0.2.7";  // documentation only: nobody has it
  const Setup setup{.flags = {"--same_network"}};
  const RunResult result = start_machine(0, setup, script("echo never"))->wait();
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, StartsWith("error: 192.0.2.7 is not an address of this machine"));
}

TEST_F(Machines, UnevenSharesAndMissingAddressesAreRefusedAtOnce) {
  const RunResult uneven =
      start_machine(0, {.machines = 2, .processes = 3}, script("echo never"))->wait();
  EXPECT_EQ(uneven.exit_code, 2);
  EXPECT_THAT(uneven.err, HasSubstr("3 processes cannot be shared evenly by 2 machines"));
  const RunResult nowhere = run({"launch", "--num_machines", "2", "--num_processes", "2", "true"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("--main_process_ip"));
  const RunResult beyond = run({"launch", "--num_machines", "2", "--machine_rank", "2",
                                "--num_processes", "2", "--main_process_ip", "127.0.0.1", "true"});
  EXPECT_EQ(beyond.exit_code, 2);
}

}  // namespace
}  // namespace accelerate::test
