// Machines that vanish, fall silent or do not answer at the wrong moment.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launch/machines.h"
#include "launch/plan/folder_entries.h"
#include "launch/raw_member.h"

namespace accelerate::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// One end of a connection of this machine, as the kernel sees it.
struct ConnectionEnd {
  static constexpr int kCloseWait = 8;  // the other side has hung up, this one has not

  int state = 0;
  unsigned long unsent_bytes = 0;  // or not acknowledged yet
};

// The ends that sit at `port` of this machine.
std::vector<ConnectionEnd> connections_at(int port) {
  std::vector<ConnectionEnd> found;
  for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream stream(file);
    std::string line;
    std::getline(stream, line);  // the names of the columns
    while (std::getline(stream, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues;
      words >> number >> local >> remote >> state >> queues;
      if (std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16) != port) continue;
      found.push_back({.state = std::stoi(state, nullptr, 16),
                       .unsent_bytes = std::stoul(queues, nullptr, 16)});
    }
  }
  return found;
}

// Whether `holds` comes true of the connections at `port` within kDeadline.
template <class Condition>
bool connections_become(int port, Condition holds) {
  for (const auto deadline = Clock::now() + kDeadline; Clock::now() < deadline;) {
    if (holds(connections_at(port))) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

TEST_F(Machines, AMachineThatIntroducesItselfAndHangsUpIsNotTakenIn) {
  const Setup setup{.machines = 2, .processes = 2};
  const auto program = script("echo $RANK");
  auto main = start_machine(0, setup, program);
  connect_to_main(port_);  // it listens now
  main->signal(SIGSTOP);   // so that it reads greeting and end in one go
  for (const char* identity : {"first", "second"}) {
    say(connect_to_main(port_), hello_of(identity));
  }
  const auto hung_up = [](const ConnectionEnd& end) {
    return end.state == ConnectionEnd::kCloseWait;
  };
  ASSERT_TRUE(connections_become(
      port_, [&](const auto& ends) { return std::ranges::count_if(ends, hung_up) >= 2; }));
  main->signal(SIGCONT);
  // It has read them before the real one comes.
  ASSERT_TRUE(connections_become(
      port_, [&](const auto& ends) { return std::ranges::none_of(ends, hung_up); }));
  auto other = start_machine(1, setup, program);
  const RunResult on_main = main->wait();
  EXPECT_EQ(on_main.exit_code, 0) << on_main.err;
  EXPECT_EQ(on_main.out, "0\n");
  EXPECT_EQ(other->wait().out, "1\n");
}

TEST_F(Machines, AMonitorIntervalAboveTheTimeoutOfAMachineLosesNone) {
  const Setup setup{.machines = 2,
                    .processes = 2,
                    .flags = {"--monitor_interval", "30", "--rdzv_conf", "machine_timeout=5"}};
  const auto program = script("sleep 6; echo $RANK");  // longer than that, without a word
  auto main = start_machine(0, setup, program);
  auto other = start_machine(1, setup, program);
  const RunResult on_main = main->wait();
  EXPECT_EQ(on_main.exit_code, 0) << on_main.err;
  EXPECT_EQ(on_main.out, "0\n");
  EXPECT_EQ(other->wait().out, "1\n");
}

// What the worker of `run` said its number is.
pid_t worker_of(const LauncherRun& run) { return std::stoi(run.out().substr(run.out().find(' '))); }

// The second interrupt comes when the first was obeyed, and late enough not to be taken for the
// same one.
void interrupt_twice(LauncherRun& run) {
  const pid_t worker = worker_of(run);
  run.signal(SIGINT);
  const auto deadline = Clock::now() + kDeadline;
  while (kill(worker, 0) == 0) {
    ASSERT_LT(Clock::now(), deadline) << "the worker did not end";
    std::this_thread::sleep_for(milliseconds(2));
  }
  std::this_thread::sleep_for(milliseconds(300));
  run.signal(SIGINT);
}

TEST_F(Machines, ASecondInterruptDoesNotWaitForAMainMachineThatDoesNotAnswer) {
  const Setup setup{.machines = 2, .processes = 2};
  const auto program = script("echo ready $$.; exec sleep 600");
  auto [main, other] = start_both(setup, program, ".");
  main->signal(SIGSTOP);
  interrupt_twice(*other);
  const RunResult on_other = other->wait();
  EXPECT_EQ(on_other.exit_code, 130) << on_other.err;
  EXPECT_THAT(on_other.err, HasSubstr("the main machine at 127.0.0.1:" + std::to_string(port_) +
                                      " did not answer"));
  main->signal(SIGCONT);  // it still hears of the signal
  EXPECT_EQ(main->wait().exit_code, 130);
}

TEST_F(Machines, ASecondInterruptDoesNotWaitForAMachineThatDoesNotAnswer) {
  const Setup setup{.machines = 2, .processes = 2};
  const auto program = script("echo ready $$.; exec sleep 600");
  auto [main, other] = start_both(setup, program, ".");
  other->signal(SIGSTOP);
  interrupt_twice(*main);
  const RunResult on_main = main->wait();
  EXPECT_EQ(on_main.exit_code, 130) << on_main.err;
  EXPECT_THAT(on_main.err, HasSubstr("machine 1 did not answer"));
  other->signal(SIGCONT);
  EXPECT_EQ(other->wait().exit_code, 130);
}

TEST_F(Machines, ASignalToAllLaunchersIsOneHoweverLateItComesToSome) {
  const Setup setup{.machines = 2, .processes = 2, .flags = {"--grace_period", "3600"}};
  const auto program = script(R"(
trap 'echo heard' INT
echo ready
until [ -e "$0.go" ]; do
  [ -e "$0.again" ] && echo still here
  sleep 0.05
done
echo saved)");
  auto [main, other] = start_both(setup, program);
  main->signal(SIGINT);
  other->wait_for_output("heard");  // by order of the main machine
  other->signal(SIGINT);
  folder_.write("worker.sh.again", "");
  other->wait_for_output("still here", 10);  // it would be killed by now
  folder_.write("worker.sh.go", "");
  EXPECT_EQ(main->wait().exit_code, 130);
  const RunResult on_other = other->wait();
  EXPECT_EQ(on_other.exit_code, 130) << on_other.err;
  EXPECT_THAT(on_other.out, HasSubstr("saved\n"));
}

TEST_F(Machines, TheLastOrderReachesAMachineThatIsSlowToReadAndStillTalks) {
  const Setup setup{.machines = 2, .processes = 2, .flags = {"--monitor_interval", "0.001"}};
  auto main = start_machine(0, setup, script("exit 0"));
  const UniqueFd member = connect_to_main(port_, 1);
  say(member, hello_of("slow"));
  read_until(member, "start ");
  // Until nothing more fits on this side: the rest waits in the system of the main machine.
  ASSERT_TRUE(connections_become(port_, [](const auto& ends) {
    return std::ranges::any_of(ends,
                               [](const ConnectionEnd& end) { return end.unsent_bytes > 2'000; });
  }));
  const UniqueFd guest = connect_to_main(port_);  // who says nothing
  std::string words = "ended attempt=0\n";
  while (words.size() < 8'000'000) words += "alive\n";
  std::thread talk([&] {  // more than the main machine reads before it ends
    const timeval patience{.tv_sec = kDeadline.count(), .tv_usec = 0};
    setsockopt(member.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    send(member.get(), words.data(), words.size(), MSG_NOSIGNAL);
  });
  // It ends when the main machine has come to its last words. One that does not wait until they are
  // read would soon be gone, and they with it.
  read_until(guest, "(nothing)");
  std::this_thread::sleep_for(milliseconds(300));
  const int much = 1 << 20;
  setsockopt(member.get(), SOL_SOCKET, SO_RCVBUF, &much, sizeof much);
  EXPECT_THAT(read_until(member, "finish "), HasSubstr("finish "));
  shutdown(member.get(), SHUT_RDWR);
  talk.join();
  EXPECT_EQ(main->wait().exit_code, 0);
}

bool holds_socket(pid_t pid) {
  for (const auto& fd : launch::folder_entries("/proc/" + std::to_string(pid) + "/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(fd, gone).string().starts_with("socket:")) return true;
  }
  return false;
}

TEST_F(Machines, ThePortIsFreeAsSoonAsTheLauncherWasKilled) {
  const Setup setup{.machines = 2, .processes = 2};
  auto main = start_machine(0, setup, script("echo ready"));
  connect_to_main(port_);
  // The guard stays a while, for its work.
  const auto guard_is_ready = [&](const std::vector<pid_t>& all) {
    return all.size() == 2 && std::none_of(all.begin(), all.end(), [&](pid_t pid) {
             return pid != main->pid() && holds_socket(pid);
           });
  };
  std::vector<pid_t> all;
  for (const auto deadline = Clock::now() + kDeadline; !guard_is_ready(all); all = processes()) {
    ASSERT_LT(Clock::now(), deadline) << "the guard of the launcher holds its sockets";
  }
  for (const pid_t pid : all) {
    if (pid != main->pid()) kill(pid, SIGSTOP);
  }
  main->signal(SIGKILL);
  EXPECT_EQ(main->wait().exit_code, 128 + SIGKILL);
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port_));
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0)
      << strerror(errno);
  for (const pid_t pid : all) {
    if (pid != main->pid()) kill(pid, SIGCONT);
  }
}

}  // namespace
}  // namespace accelerate::test
