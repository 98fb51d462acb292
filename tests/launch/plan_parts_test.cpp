// The small pieces that a plan is made of: streams to show, timeouts, host files, core shares, the
// command of mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "accelerate/errors.h"
#include "base/port_of_name.h"
#include "base/rank_names.h"
#include "launch/output/line_tail.h"
#include "launch/plan/allocation.h"
#include "launch/plan/core_shares.h"
#include "launch/plan/hostfile.h"
#include "launch/plan/launch_plan.h"
#include "launch/plan/mpirun_command.h"
#include "launch/plan/resolve_job.h"
#include "launch/plan/shell_words.h"
#include "launch/plan/worker_environment.h"
#include "launch/scratch_folder.h"

namespace accelerate::launch {
namespace {

using test::ScratchFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(TeeSetting, ReadsOneNumberForAllOrOneForEachLocalRank) {
  EXPECT_EQ(Tee::parse("0").streams_of(3), 0);
  EXPECT_EQ(Tee::parse("1").streams_of(0), Tee::kOut);
  EXPECT_EQ(Tee::parse("3").streams_of(7), Tee::kOut | Tee::kErr);
  const Tee some = Tee::parse("0:3,2:2");
  EXPECT_EQ(some.streams_of(0), 3);
  EXPECT_EQ(some.streams_of(1), 0);
  EXPECT_EQ(some.streams_of(2), Tee::kErr);
}

TEST(TeeSetting, RefusesWhatItCannotRead) {
  for (const char* text : {"", "4", "-1", "x", "0:", "0:4", ":1", "0:1,", "1,2", "0:1;1:2"}) {
    EXPECT_THROW(Tee::parse(text), ConfigError) << text;
  }
}

TEST(RendezvousSettings, SetTimeouts) {
  LaunchPlan plan;
  apply_rendezvous_settings("join_timeout=1.5,machine_timeout=7", plan);
  EXPECT_EQ(plan.join_timeout.count(), 1500);
  EXPECT_EQ(plan.machine_timeout.count(), 7000);
  apply_rendezvous_settings("timeout=900", plan);
  EXPECT_EQ(plan.join_timeout.count(), 900'000);
  apply_rendezvous_settings("keep_alive_interval=2,keep_alive_max_attempt=4", plan);
  EXPECT_EQ(plan.machine_timeout.count(), 8000);
  const LaunchPlan before = plan;
  apply_rendezvous_settings("", plan);
  EXPECT_EQ(plan.join_timeout, before.join_timeout);
}

TEST(RendezvousSettings, RefuseWhatTheyDoNotKnow) {
  LaunchPlan plan;
  for (const char* text : {"joint_timeout=1", "join_timeout", "join_timeout=0", "join_timeout=-1",
                           "join_timeout=x", "join_timeout=nan", "keep_alive_max_attempt=0", ","}) {
    EXPECT_THROW(apply_rendezvous_settings(text, plan), ConfigError) << text;
  }
}

TEST(HostFile, ReadsTheFormsOfOpenMpiAndMpich) {
  ScratchFolder folder;
  const auto hosts = read_hostfile(folder.write("hosts",
                                                "# the cluster\n"
                                                "node1 slots=4 max_slots=8\n"
                                                "\n"
                                                "node2:2   # half of it\n"
                                                "me@node3\n"
                                                "fd00::5 slots=3\n"));
  ASSERT_EQ(hosts.size(), 4U);
  EXPECT_EQ(hosts[0].name, "node1");
  EXPECT_EQ(hosts[0].slots, 4);
  EXPECT_EQ(hosts[1].name, "node2");
  EXPECT_EQ(hosts[1].slots, 2);
  EXPECT_EQ(hosts[2].name, "me@node3");
  EXPECT_EQ(address_of(hosts[2]), "node3");
  EXPECT_EQ(hosts[2].slots, 1);
  EXPECT_EQ(hosts[3].name, "fd00::5");
}

TEST(HostFile, RefusesWithFileAndLine) {
  ScratchFolder folder;
  const auto error_of = [&](const std::string& text) -> std::string {
    try {
      read_hostfile(folder.write("hosts", text));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("node1\nnode2 slots=0\n"), HasSubstr("hosts:2"));
  EXPECT_THAT(error_of("node1 slots=x\n"), HasSubstr("'x' is not a number of workers"));
  EXPECT_THAT(error_of("node1 gpus=4\n"), HasSubstr("'gpus=4' is not known"));
  EXPECT_THAT(error_of("-oProxyCommand=x\n"), HasSubstr("is not the name of a machine"));
  EXPECT_THAT(error_of("a;b\n"), HasSubstr("is not the name of a machine"));
  EXPECT_THAT(error_of("# none\n"), HasSubstr("names no machine"));
  EXPECT_THROW(read_hostfile(folder.path() / "missing"), ConfigError);
}

TEST(CoreShares, AreEqualDisjointAndInOneNode) {
  // Two packages, two cores each, two threads a core, numbered as Linux does.
  std::vector<Core> cores;
  for (int cpu = 0; cpu < 8; ++cpu) {
    cores.push_back({.cpu = cpu, .node = cpu / 2 % 2, .core = cpu % 2, .package = cpu / 2 % 2});
  }
  EXPECT_THAT(share_cores(cores, 2, {}),
              ElementsAre(ElementsAre(0, 4, 1, 5), ElementsAre(2, 6, 3, 7)));
  EXPECT_THAT(share_cores(cores, 4, {}), ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5),
                                                     ElementsAre(2, 6), ElementsAre(3, 7)));
}

TEST(CoreShares, FollowTheGpus) {
  const std::vector<Core> cores = {
      {.cpu = 0, .node = 0}, {.cpu = 1, .node = 0}, {.cpu = 2, .node = 1}, {.cpu = 3, .node = 1}};
  EXPECT_THAT(share_cores(cores, 2, {1, 0}), ElementsAre(ElementsAre(2, 3), ElementsAre(0, 1)));
  EXPECT_THAT(share_cores(cores, 3, {1, 1, 0}),
              ElementsAre(ElementsAre(2), ElementsAre(3), ElementsAre(0, 1)));
  EXPECT_THAT(share_cores(cores, 2, {-1, -1}), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST(CoreShares, MoreWorkersThanCoresShareThem) {
  const std::vector<Core> cores = {{.cpu = 4}, {.cpu = 9}};
  for (const auto& share : share_cores(cores, 5, {})) EXPECT_EQ(share.size(), 1U);
}

TEST(CoreShares, ThisMachineHasCores) {
  const std::vector<Core> cores = allowed_cores();
  EXPECT_FALSE(cores.empty());
  EXPECT_THAT(gpu_nodes("/no/such/folder"), IsEmpty());
}

TEST(CoreShares, FollowThoseGpusThatWorkersSee) {
  const std::vector<int> nodes = {0, 0, 1, 1};
  EXPECT_THAT(nodes_of_visible(nodes, std::nullopt), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(nodes_of_visible(nodes, "2,0"), ElementsAre(1, 0));
  EXPECT_THAT(nodes_of_visible(nodes, "3,7,0"), ElementsAre(1));
  EXPECT_THAT(nodes_of_visible(nodes, "-1"), IsEmpty());
  EXPECT_THAT(nodes_of_visible(nodes, "GPU-8932f937-d72c,1"), IsEmpty());
  EXPECT_THAT(nodes_of_visible(nodes, ""), IsEmpty());
}

TEST(CoreShares, ProcessorsBeyondOneSetOfTheLibraryHaveRoom) {
  const std::vector<cpu_set_t> set = processor_set({3, 2047});
  const size_t bytes = set.size() * sizeof(cpu_set_t);
  EXPECT_EQ(CPU_COUNT_S(bytes, set.data()), 2);
  EXPECT_TRUE(CPU_ISSET_S(3U, bytes, set.data()));
  EXPECT_TRUE(CPU_ISSET_S(2047U, bytes, set.data()));
}

const std::vector<Host> kHosts = {{.name = "a", .slots = 2}, {.name = "b", .slots = 2}};

LaunchPlan mpi_plan() {
  LaunchPlan plan;
  plan.command = {"/bin/train", "--lr", "0.1"};
  plan.num_processes = 4;
  plan.num_machines = 2;
  plan.hostfile = "hosts";
  return plan;
}

TEST(MpirunCommand, IsAsOpenMpiTakesIt) {
  auto words = mpirun_command(mpi_plan(), MpiKind::kOpenMpi, kHosts, {"mpirun"}, {"MASTER_PORT"});
  std::erase(words, "--allow-run-as-root");
  EXPECT_EQ(
      shell_line(words),
      "mpirun -n 4 --host a:2,b:2 --npernode 2 --bind-to socket:overload-allowed -x MASTER_PORT "
      "/bin/train --lr 0.1");
}

TEST(MpirunCommand, IsAsMpichAndIntelTakeIt) {
  EXPECT_EQ(shell_line(mpirun_command(mpi_plan(), MpiKind::kHydra, kHosts, {"mpiexec"}, {})),
            "mpiexec -n 4 -hosts a:2,b:2 -ppn 2 -genvall /bin/train --lr 0.1");
}

TEST(ShellLine, QuotesWhatAShellWouldTouch) {
  EXPECT_EQ(shell_line({"a", "b c", "it's", "", "$x"}), "a 'b c' 'it'\\''s' '' '$x'");
}

class Allocated : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& name : set_) unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }

 private:
  std::vector<std::string> set_;
};

TEST_F(Allocated, NothingIsFoundOutsideOfAScheduler) {
  if (getenv("SLURM_JOB_ID") != nullptr) GTEST_SKIP() << "this test runs inside a SLURM job";
  EXPECT_EQ(find_allocation().num_machines, 0);
}

TEST_F(Allocated, ABatchScriptKnowsItsMachinesButIsNotOnAllOfThem) {
  set("SLURM_JOB_ID", "42");
  set("SLURM_JOB_NUM_NODES", "3");
  set("SLURM_JOB_NODELIST", "node[07-09]");
  set("SLURM_NTASKS", "6");
  set("SLURM_PROCID", "0");
  const Allocation found = find_allocation();
  EXPECT_EQ(found.num_machines, 3);
  EXPECT_EQ(found.num_processes, 6);
  EXPECT_EQ(found.main_address, "node07");
  EXPECT_FALSE(found.one_task_a_machine);
  EXPECT_EQ(found.run_id, "slurm-42");
}

TEST_F(Allocated, AStepWithOneTaskAMachineTellsWhichMachineThisIs) {
  set("SLURM_JOB_ID", "42");
  set("SLURM_STEP_ID", "1");
  set("SLURM_PROCID", "2");
  set("SLURM_NODEID", "2");
  set("SLURM_STEP_NUM_NODES", "3");
  set("SLURM_STEP_NUM_TASKS", "3");
  set("SLURM_STEP_NODELIST", "rack[1-2]n[01-03]");
  set("SLURM_GPUS_ON_NODE", "4");
  const Allocation found = find_allocation();
  EXPECT_TRUE(found.one_task_a_machine);
  EXPECT_EQ(found.machine_rank, 2);
  EXPECT_EQ(found.num_processes, 12);
  EXPECT_EQ(found.main_address, "rack1n01");
  EXPECT_EQ(found.run_id, "slurm-42.1");
  EXPECT_EQ(found.main_port, port_of_name("slurm-42.1"));
}

TEST_F(Allocated, TheShellOfAnInteractiveAllocationIsNotOnAllMachines) {
  set("SLURM_JOB_ID", "42");
  set("SLURM_STEP_ID", "4294967290");
  set("SLURM_PROCID", "0");
  set("SLURM_NODEID", "0");
  set("SLURM_STEP_NUM_NODES", "1");
  set("SLURM_STEP_NUM_TASKS", "1");
  set("SLURM_STEP_NODELIST", "node07");
  set("SLURM_JOB_NUM_NODES", "3");
  set("SLURM_JOB_NODELIST", "node[07-09]");
  const Allocation found = find_allocation();
  EXPECT_EQ(found.num_machines, 3);
  EXPECT_FALSE(found.one_task_a_machine);
  EXPECT_EQ(found.run_id, "slurm-42");
}

TEST_F(Allocated, SeveralLaunchersOnOneMachineAreRefused) {
  set("SLURM_JOB_ID", "42");
  set("SLURM_STEP_ID", "0");
  set("SLURM_PROCID", "1");
  set("SLURM_STEP_NUM_NODES", "1");
  set("SLURM_STEP_NUM_TASKS", "4");
  EXPECT_THROW(find_allocation(), ConfigError);
}

std::string exception_in(const std::string& text) {
  LineTail tail;
  tail.append(StreamKind::kErr, text);
  return tail.exception();
}

TEST(ExceptionOfAWorker, IsWhatTerminateOrPythonSays) {
  EXPECT_EQ(exception_in("step 1\n"
                         "terminate called after throwing an instance of 'std::runtime_error'\n"
                         "  what():  no such shard\n"),
            "std::runtime_error: no such shard");
  EXPECT_EQ(exception_in("terminate called after throwing an instance of 'accelerate::CommError'\n"
                         "  what():  [rank 1 of 2] CommError: rank 0 was lost\n"),
            "[rank 1 of 2] CommError: rank 0 was lost");
  EXPECT_EQ(exception_in("terminate called after throwing an instance of 'int'\n"), "int");
  EXPECT_EQ(exception_in("Traceback (most recent call last):\n"
                         "  File \"train.py\", line 3, in <module>\n"
                         "    main()\n"
                         "ValueError: bad batch"),
            "ValueError: bad batch");
  EXPECT_EQ(exception_in("[rank 3 of 8] DataError: empty\n"), "[rank 3 of 8] DataError: empty");
  EXPECT_EQ(exception_in("loss 0.5\nError: is the word of others\n"), "");
}

std::string last_line_of(const std::string& text) {
  LineTail tail;
  tail.append(StreamKind::kErr, text + "\n");
  return tail.lines().back();
}

TEST(LastLines, ControlNoTerminal) {
  EXPECT_EQ(last_line_of("a\x1b[31mred\x1b[0m \x07"), "ared ?");
  EXPECT_EQ(last_line_of("caf\u00e9 \u00a0 \u20ac \U0001f600"),
            "caf\u00e9 \u00a0 \u20ac \U0001f600");
  EXPECT_EQ(last_line_of("\xc2\x9b"
                         "2J\xc2\x85"),
            "??2J??");
  EXPECT_EQ(last_line_of("\x9b"
                         "2J \xe9t\xe9 \xff"),
            "?2J ?t? ?");
}

TEST(LastLines, AreNotCutWithinACharacter) {
  const std::string begin(LineTail::kMaxLineBytes - 2, 'x');
  EXPECT_EQ(last_line_of(begin + "\u20ac and more"), begin + " [...]");
}

TEST(ExceptionOfAWorker, IsKeptHoweverMuchComesAfterIt) {
  std::string text =
      "terminate called after throwing an instance of 'std::bad_alloc'\n"
      "  what():  std::bad_alloc\n";
  for (int i = 0; i < 1000; ++i) text += "frame " + std::to_string(i) + "\n";
  EXPECT_EQ(exception_in(text), "std::bad_alloc: std::bad_alloc");
}

class Resolving : public ::testing::Test {
 protected:
  // Two machines of a host file, with slots.
  LaunchPlan over_ssh(const std::string& hosts) {
    LaunchPlan request;
    request.command = {"/bin/train"};
    request.launcher = LauncherKind::kSsh;
    request.hostfile = folder_.write("hosts", hosts);
    request.num_machines = 0;
    request.num_processes = 0;
    return request;
  }
  static std::string refusal(const LaunchPlan& request) {
    try {
      resolve(request);
    } catch (const ConfigError& error) {
      return error.message();
    }
    return "";
  }

  test::ScratchFolder folder_;
};

TEST_F(Resolving, FillsInWhatTheHostFileSays) {
  const LaunchPlan request = over_ssh("me@a slots=2\nb slots=2\nc slots=2\n");
  const JobPlan job = resolve(request);
  EXPECT_EQ(job.num_machines, 3);
  EXPECT_EQ(job.num_processes, 6);
  EXPECT_EQ(job.main_address, "a");
  EXPECT_EQ(job.hosts.size(), 3U);
  EXPECT_FALSE(job.run_id.empty());
  EXPECT_EQ(job.main_port, port_of_name(job.run_id));
  EXPECT_TRUE(job.has_made_up_run_id);
  EXPECT_TRUE(job.has_drawn_port);
  EXPECT_NE(resolve(request).run_id, job.run_id);
}

TEST_F(Resolving, LeavesWhatTheUserDecided) {
  LaunchPlan request = over_ssh("a slots=2\nb slots=1\nc\n");
  request.num_machines = 2;
  request.num_processes = 8;
  request.main_address = "10.0.0.7";
  request.main_port = 1234;
  request.run_id = "mine";
  const JobPlan job = resolve(request);
  EXPECT_EQ(job.hosts.size(), 2U);
  EXPECT_EQ(job.num_processes, 8);
  EXPECT_EQ(job.main_address, "10.0.0.7");
  EXPECT_EQ(job.main_port, 1234);
  EXPECT_EQ(job.run_id, "mine");
  EXPECT_FALSE(job.has_made_up_run_id);
  EXPECT_FALSE(job.has_drawn_port);
}

TEST_F(Resolving, MembersLearnTheNameOfTheJobLater) {
  LaunchPlan request;
  request.num_machines = request.num_processes = 2;
  request.machine_rank = 1;
  EXPECT_EQ(refusal(request),
            "--num_machines 2 needs the address of the machine with --machine_rank 0");
  request.main_address = "10.0.0.1";
  EXPECT_EQ(resolve(request).run_id, "");
  EXPECT_EQ(resolve(request).main_port, 29500);
}

TEST_F(Resolving, RefusesWhatDoesNotGoTogether) {
  EXPECT_EQ(refusal(over_ssh("a slots=2\nb slots=1\n")),
            "a has 2 slots, b has 1: every machine runs the same number of workers");
  LaunchPlan request = over_ssh("a\n");
  request.num_machines = 2;
  EXPECT_EQ(refusal(request), "--num_machines 2, but the host file names 1");
  request = over_ssh("a\nb\n");
  request.num_processes = 3;
  EXPECT_EQ(refusal(request), "3 processes cannot be divided evenly among 2 machines");
  request = LaunchPlan{};
  request.tee = Tee::parse("1:3");
  EXPECT_EQ(refusal(request), "--tee names local rank 1, but the last one of a machine is 0");
  request = LaunchPlan{};
  request.launcher = LauncherKind::kSsh;
  EXPECT_EQ(refusal(request), "--launcher ssh needs the list of machines");
}

TEST_F(Resolving, OutputOfAnEarlierRunIsKept) {
  LaunchPlan plan;
  plan.num_processes = 2;
  EXPECT_EQ(place_of_logs(plan).folder, "");
  const std::filesystem::path logs = folder_.path() / "logs";
  plan.log_dir = logs;
  EXPECT_EQ(place_of_logs(plan).folder, logs);
  EXPECT_TRUE(place_of_logs(plan).notes.empty());
  std::filesystem::create_directories(logs / "rank_1");
  const LogPlace second = place_of_logs(plan);
  EXPECT_EQ(second.folder, logs / "run_2");
  EXPECT_EQ(second.run, 2);
  EXPECT_EQ(second.notes.size(), 1U);
  // As a launcher behind ssh finds it: the first one has chosen the folder.
  plan.log_dir = second.folder;
  plan.log_run = 2;
  EXPECT_EQ(place_of_logs(plan).folder, second.folder);
  EXPECT_TRUE(place_of_logs(plan).notes.empty());
  std::filesystem::create_directories(second.folder / "rank_0");
  EXPECT_EQ(place_of_logs(plan).folder, logs / "run_3");
}

// A worker that saw one of these beside its own names would be refused, or be somebody else.
TEST(WorkerEnvironment, HidesEveryNameByWhichAnotherLauncherTellsARank) {
  for (const RankNames* family : {&kOpenMpiNames, &kPmiNames, &kMvapichNames, &kSlurmNames}) {
    for (const char* name : {family->rank, family->world_size, family->local_rank,
                             family->local_world_size, family->node_rank}) {
      EXPECT_TRUE(name == nullptr || is_foreign_rank_variable(name)) << name;
    }
  }
  EXPECT_FALSE(is_foreign_rank_variable("SLURM_JOB_ID"));
}

}  // namespace
}  // namespace accelerate::launch
