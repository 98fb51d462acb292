#include "launch/plan/worker_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace accelerate::launch {
namespace {

using ::testing::Contains;
using ::testing::IsSupersetOf;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using Variables = std::map<std::string, std::string>;

Variables variables_of(const LaunchPlan& plan, int rank, const WorkerContext& context = {},
                       const Attempt& attempt = {}) {
  Variables variables;
  for (const std::string& variable : worker_environment(plan, rank, context, attempt)) {
    const size_t equals = variable.find('=');
    const bool is_new =
        variables.emplace(variable.substr(0, equals), variable.substr(equals + 1)).second;
    EXPECT_TRUE(is_new) << variable << " is there twice";
  }
  return variables;
}

LaunchPlan plan_of(int num_processes) {
  LaunchPlan plan;
  plan.num_processes = num_processes;
  plan.main_port = 29501;
  return plan;
}

TEST(WorkerEnvironment, NamesRankAndWorldAsTorchrunDoes) {
  EXPECT_THAT(variables_of(plan_of(3), 2, {.cores = 7}),
              UnorderedElementsAre(
                  Pair("RANK", "2"), Pair("LOCAL_RANK", "2"), Pair("WORLD_SIZE", "3"),
                  Pair("LOCAL_WORLD_SIZE", "3"), Pair("NODE_RANK", "0"), Pair("GROUP_RANK", "0"),
                  Pair("GROUP_WORLD_SIZE", "1"), Pair("MASTER_ADDR", "127.0.0.1"),
                  Pair("MASTER_PORT", "29501"), Pair("TORCHELASTIC_RUN_ID", "none"),
                  Pair("TORCHELASTIC_RESTART_COUNT", "0"), Pair("TORCHELASTIC_MAX_RESTARTS", "0"),
                  Pair("TORCHELASTIC_USE_AGENT_STORE", "False"), Pair("OMP_NUM_THREADS", "2")));
}

TEST(WorkerEnvironment, CountsRanksOverAllMachines) {
  LaunchPlan plan = plan_of(6);
  plan.num_machines = 3;
  plan.machine_rank = 2;
  plan.main_address = "10.0.0.1";
  plan.max_restarts = 4;
  const Variables variables = variables_of(
      plan, 1, {.cores = 8}, {.restarts = 3, .main_address = "10.0.0.1", .main_port = 31000});
  EXPECT_THAT(variables,
              IsSupersetOf({Pair("RANK", "5"), Pair("LOCAL_RANK", "1"), Pair("WORLD_SIZE", "6"),
                            Pair("LOCAL_WORLD_SIZE", "2"), Pair("NODE_RANK", "2"),
                            Pair("MASTER_ADDR", "10.0.0.1"), Pair("MASTER_PORT", "31000"),
                            Pair("TORCHELASTIC_RESTART_COUNT", "3"),
                            Pair("TORCHELASTIC_MAX_RESTARTS", "4"), Pair("OMP_NUM_THREADS", "4")}));
}

TEST(WorkerEnvironment, SettingsReplaceInheritedOnesButNeverRanks) {
  LaunchPlan plan = plan_of(2);
  plan.gpu_ids = "3,5";
  plan.mixed_precision = "bf16";
  plan.variables = {
      {"ACCELERATE_MIXED_PRECISION", "fp16"}, {"ACCELERATE_DEBUG_MODE", "true"}, {"RANK", "9"}};
  const Variables variables =
      variables_of(plan, 1, {.inherited = {"CUDA_VISIBLE_DEVICES=0", "ACCELERATE_DEBUG_MODE=no"}});
  EXPECT_THAT(variables, IsSupersetOf({Pair("CUDA_VISIBLE_DEVICES", "3,5"),
                                       Pair("ACCELERATE_MIXED_PRECISION", "fp16"),
                                       Pair("ACCELERATE_DEBUG_MODE", "true"), Pair("RANK", "1")}));
  plan.gpu_ids = "all";
  EXPECT_THAT(variables_of(plan, 0, {.inherited = {"CUDA_VISIBLE_DEVICES=0"}}),
              Contains(Pair("CUDA_VISIBLE_DEVICES", "0")));
}

TEST(WorkerEnvironment, LeavesTheRanksToMpirun) {
  LaunchPlan plan = plan_of(1);
  plan.launcher = LauncherKind::kMpirun;
  const Variables variables = variables_of(plan, 0, {.inherited = {"RANK=3", "WORLD_SIZE=4"}});
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"}) {
    EXPECT_THAT(variables, Not(Contains(Key(name))));
  }
  EXPECT_THAT(variables, Contains(Pair("MASTER_PORT", "29501")));
}

TEST(WorkerEnvironment, LeavesThreadsToTheMachinesThatSshAndSrunReach) {
  for (const LauncherKind kind :
       {LauncherKind::kMpirun, LauncherKind::kSlurm, LauncherKind::kSsh}) {
    LaunchPlan plan = plan_of(2);
    plan.launcher = kind;
    EXPECT_THAT(variables_of(plan, 0, {.cores = 64}), Not(Contains(Key("OMP_NUM_THREADS"))));
    EXPECT_THAT(variables_of(plan, 0, {.inherited = {"OMP_NUM_THREADS=5"}}),
                Contains(Pair("OMP_NUM_THREADS", "5")));
    plan.num_cpu_threads_per_process = 3;
    EXPECT_THAT(variables_of(plan, 0), Contains(Pair("OMP_NUM_THREADS", "3")));
  }
}

TEST(WorkerEnvironment, ASingleProcessIsAWorldOfOne) {
  const Variables variables = variables_of(plan_of(1), 0);
  EXPECT_THAT(variables, IsSupersetOf({Pair("RANK", "0"), Pair("WORLD_SIZE", "1")}));
}

TEST(WorkerEnvironment, KeepsWhatTheUserSetAndReplacesRanksOfAnOuterJob) {
  const Variables variables =
      variables_of(plan_of(2), 1,
                   {.inherited = {"HOME=/home/a", "EMPTY=", "EQUATION=a=b", "RANK=7",
                                  "WORLD_SIZE=8", "MASTER_PORT=1", "SLURM_JOB_ID=42"}});
  EXPECT_THAT(variables,
              IsSupersetOf({Pair("HOME", "/home/a"), Pair("EMPTY", ""), Pair("EQUATION", "a=b"),
                            Pair("RANK", "1"), Pair("WORLD_SIZE", "2"),
                            Pair("MASTER_PORT", "29501"), Pair("SLURM_JOB_ID", "42")}));
}

TEST(WorkerEnvironment, DropsRanksThatOtherLaunchersGave) {
  const std::vector<std::string> foreign = {
      "OMPI_COMM_WORLD_RANK",
      "OMPI_COMM_WORLD_SIZE",
      "PMI_RANK",
      "PMI_SIZE",
      "PMIX_RANK",
      "MV2_COMM_WORLD_RANK",
      "SLURM_PROCID",
      "SLURM_LOCALID",
      "SLURM_NTASKS",
      "SLURM_STEP_NUM_TASKS",
      "TORCHELASTIC_ERROR_FILE",
      "ROLE_RANK",
  };
  WorkerContext context;
  for (const std::string& name : foreign) context.inherited.push_back(name + "=5");
  const Variables variables = variables_of(plan_of(2), 0, context);
  for (const std::string& name : foreign) EXPECT_THAT(variables, Not(Contains(Key(name))));
}

TEST(WorkerEnvironment, SharesTheCoresOutUnlessTheUserDecided) {
  EXPECT_THAT(variables_of(plan_of(4), 0, {.cores = 2}), Contains(Pair("OMP_NUM_THREADS", "1")));
  const WorkerContext user{.inherited = {"OMP_NUM_THREADS=5"}, .cores = 16};
  EXPECT_THAT(variables_of(plan_of(2), 0, user), Contains(Pair("OMP_NUM_THREADS", "5")));
  LaunchPlan flag = plan_of(2);
  flag.num_cpu_threads_per_process = 3;
  EXPECT_THAT(variables_of(flag, 0, user), Contains(Pair("OMP_NUM_THREADS", "3")));
}

TEST(WorkerEnvironment, PassesOnOnlyTheSettingsThatWereGiven) {
  LaunchPlan plan = plan_of(1);
  EXPECT_THAT(variables_of(plan, 0), Not(Contains(Key("ACCELERATE_USE_CPU"))));
  EXPECT_THAT(variables_of(plan, 0), Not(Contains(Key("ACCELERATE_MIXED_PRECISION"))));
  plan.use_cpu = true;
  plan.mixed_precision = "bf16";
  EXPECT_THAT(variables_of(plan, 0), Contains(Pair("ACCELERATE_USE_CPU", "true")));
  EXPECT_THAT(variables_of(plan, 0), Contains(Pair("ACCELERATE_MIXED_PRECISION", "bf16")));
}

TEST(WorkerEnvironment, RanksThatShareGpusAreHostsOfTheirOwnToNcclAndKeepTheirLocalRank) {
  LaunchPlan plan = plan_of(2);
  plan.variables = {{"ACCELERATE_SHARE_GPUS", "true"}};
  for (const int rank : {0, 1}) {
    const Variables variables = variables_of(plan, rank, {.inherited = {"NCCL_HOSTID=one"}});
    EXPECT_THAT(variables, Contains(Pair("ACCELERATE_SHARE_GPUS", "true")));
    EXPECT_THAT(variables,
                Contains(Pair("NCCL_HOSTID", "accelerate-rank-" + std::to_string(rank))));
    EXPECT_THAT(variables, Contains(Pair("NCCL_SOCKET_IFNAME", "lo")));
    EXPECT_THAT(variables, Contains(Pair("LOCAL_RANK", std::to_string(rank))));
    EXPECT_THAT(variables, Contains(Pair("LOCAL_WORLD_SIZE", "2")));
  }
  EXPECT_THAT(variables_of(plan, 0, {.inherited = {"NCCL_SOCKET_IFNAME=eth1"}}),
              Contains(Pair("NCCL_SOCKET_IFNAME", "eth1")));
}

TEST(WorkerEnvironment, RanksOnSeveralMachinesThatShareGpusFindTheirNetworkThemselves) {
  LaunchPlan plan = plan_of(4);
  plan.num_machines = 2;
  plan.machine_rank = 1;
  plan.main_address = "10.0.0.1";
  const Variables variables = variables_of(plan, 1, {.inherited = {"ACCELERATE_SHARE_GPUS=yes"}});
  EXPECT_THAT(variables, Contains(Pair("NCCL_HOSTID", "accelerate-rank-3")));
  EXPECT_THAT(variables, Not(Contains(Key("NCCL_SOCKET_IFNAME"))));
}

TEST(WorkerEnvironment, NothingIsSaidToNcclWhereGpusAreNotShared) {
  for (const char* inherited : {"ACCELERATE_SHARE_GPUS=false", "ACCELERATE_SHARE_GPUS="}) {
    const Variables variables = variables_of(plan_of(2), 1, {.inherited = {inherited}});
    EXPECT_THAT(variables, Not(Contains(Key("NCCL_HOSTID"))));
    EXPECT_THAT(variables, Not(Contains(Key("NCCL_SOCKET_IFNAME"))));
  }
}

}  // namespace
}  // namespace accelerate::launch
