// Jobs with a range of machines: they go on with those that are left.
#include <gmock/gmock.h>
#include <signal.h>

#include "launch/machines.h"

namespace accelerate::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Says where it is; ends well in the attempt that the file `worker.sh.last` names, else stays.
constexpr const char* kPatientWorker = R"sh(
echo "restart $TORCHELASTIC_RESTART_COUNT: rank $RANK of $WORLD_SIZE, node $NODE_RANK."
while true; do
  [ -e "$0.last" ] && [ "$(cat "$0.last")" = $TORCHELASTIC_RESTART_COUNT ] && exit 0
  [ -e "$0.fail.$TORCHELASTIC_RESTART_COUNT" ] && exit 3
  sleep 0.03
done)sh";

class ElasticMachines : public Machines {
 protected:
  std::unique_ptr<LauncherRun> start_one(int machine, const std::vector<std::string>& program,
                                         const std::string& range = "2:3",
                                         std::vector<std::string> flags = {}) {
    const std::string most = range.substr(range.find(':') + 1);
    std::vector<std::string> arguments = {"launch",
                                          "--cpu",
                                          "--num_machines",
                                          range,
                                          "--machine_rank",
                                          std::to_string(machine),
                                          "--num_processes",
                                          most,
                                          "--main_process_ip",
                                          address_,
                                          "--main_process_port",
                                          std::to_string(port_),
                                          "--max_restarts",
                                          "3",
                                          "--rdzv_conf",
                                          rendezvous_,
                                          "--grace_period",
                                          "1"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    arguments.insert(arguments.end(), program.begin(), program.end());
    return start(arguments);
  }
  std::vector<std::unique_ptr<LauncherRun>> start_all(const std::vector<std::string>& program,
                                                      const std::string& range = "2:3") {
    std::vector<std::unique_ptr<LauncherRun>> runs;
    const int machines = std::stoi(range.substr(range.find(':') + 1));
    for (int i = 0; i < machines; ++i) runs.push_back(start_one(i, program, range));
    for (auto& run : runs) run->wait_for_output("restart 0");
    return runs;
  }
  static void kill_launcher(LauncherRun& run) {
    run.signal(SIGKILL);
    EXPECT_EQ(run.wait().exit_code, 128 + SIGKILL);
  }
  void end_in(int restart) { folder_.write("worker.sh.last", std::to_string(restart) + "\n"); }

  std::string rendezvous_ = "machine_timeout=20,join_timeout=60";
};

TEST_F(ElasticMachines, GoOnWithoutOneThatWasLost) {
  const auto program = script(kPatientWorker);
  auto runs = start_all(program);
  kill_launcher(*runs[1]);
  end_in(1);
  const RunResult main = runs[0]->wait();
  const RunResult other = runs[2]->wait();
  EXPECT_EQ(main.exit_code, 0) << main.err;
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(main.out, "restart 0: rank 0 of 3, node 0.\nrestart 1: rank 0 of 2, node 0.\n");
  EXPECT_EQ(other.out, "restart 0: rank 2 of 3, node 2.\nrestart 1: rank 1 of 2, node 1.\n");
  EXPECT_THAT(main.err, HasSubstr("was lost: its connection ended"));
  EXPECT_THAT(main.err,
              HasSubstr("accelerate launch: going on with 2 of 3 machines, without machine 1\n"));
}

TEST_F(ElasticMachines, GoOnWithoutTheMainOne) {
  const auto program = script(kPatientWorker);
  auto runs = start_all(program);
  kill_launcher(*runs[0]);
  end_in(1);
  const RunResult successor = runs[1]->wait();
  const RunResult other = runs[2]->wait();
  EXPECT_EQ(successor.exit_code, 0) << successor.err;
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(successor.out, "restart 0: rank 1 of 3, node 1.\nrestart 1: rank 0 of 2, node 0.\n");
  EXPECT_EQ(other.out, "restart 0: rank 2 of 3, node 2.\nrestart 1: rank 1 of 2, node 1.\n");
  EXPECT_THAT(successor.err, HasSubstr("this is the main machine now, at 127.0.0.1:" +
                                       std::to_string(port_) + ", for restart 1 of 3"));
}

TEST_F(ElasticMachines, GoOnWithoutTheMainOneAndTheNext) {
  rendezvous_ = "machine_timeout=2,join_timeout=60";
  const auto program = script(kPatientWorker);
  auto runs = start_all(program, "2:4");
  runs[1]->signal(SIGKILL);
  kill_launcher(*runs[0]);
  EXPECT_EQ(runs[1]->wait().exit_code, 128 + SIGKILL);
  end_in(1);
  const RunResult successor = runs[2]->wait();
  const RunResult other = runs[3]->wait();
  EXPECT_EQ(successor.exit_code, 0) << successor.err;
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(successor.out, HasSubstr("restart 1: rank 0 of 2, node 0.\n"));
  EXPECT_THAT(other.out, HasSubstr("restart 1: rank 1 of 2, node 1.\n"));
}

TEST_F(ElasticMachines, TakeANewOneInAtTheNextRestart) {
  const auto program = script(kPatientWorker);
  auto runs = start_all(program);
  kill_launcher(*runs[2]);
  runs[0]->wait_for_output("restart 1");
  runs[1]->wait_for_output("restart 1");
  runs[2] = start_one(2, program);
  runs[0]->wait_for_error("waits for the next restart");
  end_in(2);
  folder_.write("worker.sh.fail.1", "");
  for (int i = 0; i < 3; ++i) {
    const RunResult result = runs[static_cast<size_t>(i)]->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string rank = std::to_string(i);
    EXPECT_THAT(result.out, HasSubstr("restart 2: rank " + rank + " of 3, node " + rank + ".\n"));
  }
}

TEST_F(ElasticMachines, BeginWithFewerAfterTheLastCall) {
  rendezvous_ = "machine_timeout=20,join_timeout=60,last_call_timeout=0.5";
  const auto program = script("echo rank $RANK of $WORLD_SIZE");
  auto main = start_one(0, program);
  auto other = start_one(2, program);
  const RunResult on_main = main->wait();
  EXPECT_EQ(on_main.exit_code, 0) << on_main.err;
  EXPECT_EQ(on_main.out, "rank 0 of 2\n");
  EXPECT_EQ(other->wait().out, "rank 1 of 2\n");
}

TEST_F(ElasticMachines, DoNotGoOnWithFewerThanTheLeast) {
  rendezvous_ = "machine_timeout=20,join_timeout=1";
  auto runs = start_all(script(kPatientWorker));
  runs[1]->signal(SIGKILL);
  runs[2]->signal(SIGKILL);
  const RunResult main = runs[0]->wait();
  EXPECT_EQ(main.exit_code, 75);
  EXPECT_THAT(main.err, HasSubstr("error: machines 1 and 2 did not connect within 1.00 s\n"));
  for (int i : {1, 2}) runs[static_cast<size_t>(i)]->wait();
}

TEST_F(ElasticMachines, WithoutRestartsALostMainMachineEndsTheJob) {
  const auto program = script(kPatientWorker);
  std::vector<std::unique_ptr<LauncherRun>> runs;
  for (int i = 0; i < 3; ++i) runs.push_back(start_one(i, program, "2:3", {"--max_restarts", "0"}));
  for (auto& run : runs) run->wait_for_output("restart 0");
  kill_launcher(*runs[0]);
  EXPECT_EQ(runs[1]->wait().exit_code, 75);
  EXPECT_EQ(runs[2]->wait().exit_code, 75);
}

TEST_F(ElasticMachines, RangesThatCannotBeAreRefused) {
  const auto refused = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"launch"};
    words.insert(words.end(), flags.begin(), flags.end());
    words.push_back("true");
    const RunResult result = run(words);
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  EXPECT_THAT(refused({"--num_machines", "4:2", "--num_processes", "4"}),
              HasSubstr("at least 4 machines are asked for, and 2 at most"));
  EXPECT_THAT(refused({"--num_machines=two:4"}), HasSubstr("min_machines cannot be 'two'"));
  const std::string hosts = folder_.write("hosts", "a slots=1\nb slots=1\n");
  EXPECT_THAT(refused({"--num_machines", "1:2", "--num_processes", "2", "--launcher", "ssh",
                       "--hostfile", hosts}),
              HasSubstr("a job with a range of machines needs a launcher of its own on each"));
}

}  // namespace
}  // namespace accelerate::test
