#include "accelerate/process_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

using Variables = std::map<std::string, std::string>;
using testing::HasSubstr;

EnvironmentLookup table(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

RankEnvironment read(const Variables& variables) { return RankEnvironment::read(table(variables)); }

ProcessState state_of(const Variables& variables, int gpu_count, bool cpu = false) {
  return ProcessState::read(table(variables), gpu_count, {.cpu = cpu});
}

// The message of the ConfigError that `variables` cause.
std::string refusal(const Variables& variables) {
  try {
    read(variables);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

const Variables kTorchrunRank3 = {{"RANK", "3"},          {"WORLD_SIZE", "4"},
                                  {"LOCAL_RANK", "1"},    {"LOCAL_WORLD_SIZE", "2"},
                                  {"NODE_RANK", "1"},     {"MASTER_ADDR", "10.0.0.7"},
                                  {"MASTER_PORT", "1234"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

struct Place {
  int rank = 0, world_size = 1, local_rank = 0, local_world_size = 1, node_rank = 0;
};

void expect_place(const RankEnvironment& ranks, const Place& place) {
  EXPECT_EQ(ranks.rank, place.rank);
  EXPECT_EQ(ranks.world_size, place.world_size);
  EXPECT_EQ(ranks.local_rank, place.local_rank);
  EXPECT_EQ(ranks.local_world_size, place.local_world_size);
  EXPECT_EQ(ranks.node_rank, place.node_rank);
}

TEST(RankEnvironment, IsOneProcessWhereNothingIsSet) {
  const RankEnvironment ranks = read({});
  expect_place(ranks, {.rank = 0, .world_size = 1, .local_rank = 0, .local_world_size = 1});
  EXPECT_EQ(ranks.source, "none");
}

TEST(RankEnvironment, ReadsTorchrunsNames) {
  const RankEnvironment ranks = read(kTorchrunRank3);
  expect_place(
      ranks, {.rank = 3, .world_size = 4, .local_rank = 1, .local_world_size = 2, .node_rank = 1});
  EXPECT_EQ(ranks.master_address, "10.0.0.7");
  EXPECT_EQ(ranks.master_port, 1234);
  EXPECT_FALSE(ranks.store_is_hosted);
  EXPECT_EQ(ranks.source, "torchrun");
}

TEST(RankEnvironment, LetsTorchrunsAgentHostTheStore) {
  EXPECT_TRUE(
      read(with(kTorchrunRank3, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).store_is_hosted);
}

TEST(RankEnvironment, TakesGroupRankForTheNode) {
  const auto variables = with(without(kTorchrunRank3, "NODE_RANK"), {{"GROUP_RANK", "1"}});
  EXPECT_EQ(read(variables).node_rank, 1);
}

TEST(RankEnvironment, PutsAllRanksOnThisMachineIfNothingIsSaidAboutMachines) {
  const RankEnvironment ranks = read(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "9"}});
  EXPECT_EQ(ranks.local_rank, 1);
  EXPECT_EQ(ranks.local_world_size, 2);
  EXPECT_EQ(ranks.node_rank, 0);
}

TEST(RankEnvironment, FindsTheRanksOfAMachineByTheNumberOfTheNode) {
  EXPECT_EQ(read(without(kTorchrunRank3, "LOCAL_WORLD_SIZE")).local_world_size, 2);
}

TEST(RankEnvironment, ReadsOpenMpi) {
  const RankEnvironment ranks = read({{"OMPI_COMM_WORLD_RANK", "2"},
                                      {"OMPI_COMM_WORLD_SIZE", "3"},
                                      {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}});
  expect_place(ranks, {.rank = 2, .world_size = 3, .local_rank = 2, .local_world_size = 3});
  EXPECT_EQ(ranks.master_address, "127.0.0.1");
  EXPECT_EQ(ranks.master_port, 29500);
  EXPECT_EQ(ranks.source, "Open MPI");
}

TEST(RankEnvironment, ReadsPmi) {
  const RankEnvironment ranks = read({{"PMI_RANK", "1"},
                                      {"PMI_SIZE", "2"},
                                      {"MPI_LOCALRANKID", "0"},
                                      {"MPI_LOCALNRANKS", "1"},
                                      {"MASTER_ADDR", "head"}});
  expect_place(
      ranks, {.rank = 1, .world_size = 2, .local_rank = 0, .local_world_size = 1, .node_rank = 1});
  EXPECT_EQ(ranks.master_address, "head");
  EXPECT_EQ(ranks.source, "PMI");
}

TEST(RankEnvironment, ReadsMvapich) {
  const RankEnvironment ranks = read({{"MV2_COMM_WORLD_RANK", "1"},
                                      {"MV2_COMM_WORLD_SIZE", "2"},
                                      {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                                      {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(ranks.rank, 1);
  EXPECT_EQ(ranks.local_rank, 1);
  EXPECT_EQ(ranks.source, "MVAPICH");
}

const Variables kSlurmStep = {{"SLURM_PROCID", "5"},
                              {"SLURM_NTASKS", "7"},
                              {"SLURM_LOCALID", "2"},
                              {"SLURM_NODEID", "1"},
                              {"SLURM_STEP_ID", "0"},
                              {"SLURM_STEP_TASKS_PER_NODE", "3(x2),1"},
                              {"SLURM_STEP_NODELIST", "node[07-08,12]"},
                              {"SLURM_JOB_ID", "12345"}};

const Place kSlurmPlace{
    .rank = 5, .world_size = 7, .local_rank = 2, .local_world_size = 3, .node_rank = 1};

TEST(RankEnvironment, ReadsASlurmStep) {
  const RankEnvironment ranks = read(kSlurmStep);
  expect_place(ranks, kSlurmPlace);
  EXPECT_EQ(ranks.master_address, "node07");
  EXPECT_EQ(ranks.source, "SLURM");
}

// The port that a launcher's name for the job stands for.
void expect_derived(uint16_t port) {
  EXPECT_GE(port, 20000);
  EXPECT_LT(port, 30000);
}

TEST(RankEnvironment, GivesEachSlurmStepItsOwnPortAndName) {
  const RankEnvironment first = read(kSlurmStep);
  const RankEnvironment second = read(with(kSlurmStep, {{"SLURM_STEP_ID", "1"}}));
  const RankEnvironment other_job = read(with(kSlurmStep, {{"SLURM_JOB_ID", "12346"}}));
  const RankEnvironment other_rank = read(with(kSlurmStep, {{"SLURM_PROCID", "4"}}));
  expect_derived(first.master_port);
  EXPECT_NE(first.master_port, second.master_port);
  EXPECT_NE(first.master_port, other_job.master_port);
  EXPECT_EQ(first.master_port, other_rank.master_port);
  EXPECT_NE(first.job, second.job);
  EXPECT_NE(first.job, other_job.job);
  EXPECT_EQ(first.job, other_rank.job);
  EXPECT_EQ(read(with(kSlurmStep, {{"MASTER_PORT", "7"}})).master_port, 7);
}

TEST(RankEnvironment, TakesSlurmsNumbersOfSpecialSteps) {
  EXPECT_EQ(read(with(kSlurmStep, {{"SLURM_STEP_ID", "4294967290"}})).rank, 5);
}

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

TEST(RankEnvironment, GivesEachMpirunItsOwnPortAndName) {
  const RankEnvironment first = read(with(kOpenMpi, {{"PMIX_NAMESPACE", "prterun-host-77@1"}}));
  const RankEnvironment second = read(with(kOpenMpi, {{"PMIX_NAMESPACE", "prterun-host-78@1"}}));
  expect_derived(first.master_port);
  expect_derived(second.master_port);
  EXPECT_NE(first.master_port, second.master_port);
  EXPECT_NE(first.job, second.job);
  EXPECT_EQ(read(with(kOpenMpi, {{"PMIX_NAMESPACE", "x"}, {"MASTER_PORT", "7"}})).master_port, 7);
}

TEST(RankEnvironment, NamesTheRunAndTheAttemptOfTorchrun) {
  const Variables run = with(kTorchrunRank3, {{"TORCHELASTIC_RUN_ID", "r"}});
  const std::string first = read(with(run, {{"TORCHELASTIC_RESTART_COUNT", "0"}})).job;
  const std::string second = read(with(run, {{"TORCHELASTIC_RESTART_COUNT", "1"}})).job;
  EXPECT_NE(first, second);
  EXPECT_NE(first, read(kTorchrunRank3).job);
}

// One launcher on each machine, each in a SLURM step of its own, makes one job.
TEST(RankEnvironment, NamesTheJobByTheLauncherThatStartedItAlone) {
  EXPECT_EQ(read(with(kSlurmStep, kTorchrunRank3)).job, read(kTorchrunRank3).job);
  EXPECT_EQ(read(with(kTorchrunRank3, {{"PMIX_NAMESPACE", "x"}})).job, read(kTorchrunRank3).job);
}

TEST(RankEnvironment, TakesTheFirstHostOfAPlainSlurmList) {
  EXPECT_EQ(read(with(kSlurmStep, {{"SLURM_STEP_NODELIST", "alpha,beta"}})).master_address,
            "alpha");
}

TEST(RankEnvironment, ExpandsTheFirstHostOfASlurmListWholly) {
  const auto first_of = [](const char* list) {
    return read(with(kSlurmStep, {{"SLURM_STEP_NODELIST", list}})).master_address;
  };
  EXPECT_EQ(first_of("gpu1"), "gpu1");
  EXPECT_EQ(first_of("node[1-4]-ib"), "node1-ib");
  EXPECT_EQ(first_of("node[3,5-9]-ib,other[1-2]"), "node3-ib");
  EXPECT_EQ(first_of("rack[1-2]n[01-03]"), "rack1n01");
  EXPECT_EQ(first_of("alpha-x,beta[1-2]"), "alpha-x");
  EXPECT_EQ(first_of("node[07"), "node07");
}

// srun --mpi=pmi2 sets PMI's rank and size, and nothing about machines.
TEST(RankEnvironment, TakesSlurmsPlacesWherePmiKnowsOnlyRankAndSize) {
  const RankEnvironment ranks = read(with(kSlurmStep, {{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}}));
  expect_place(ranks, kSlurmPlace);
  EXPECT_EQ(ranks.master_address, "node07");
  EXPECT_EQ(ranks.source, "SLURM");
}

// mpirun starts one helper a machine through srun: the step describes the helpers.
TEST(RankEnvironment, TakesMpisOwnPlacesInsideAStepOfItsHelpers) {
  const RankEnvironment ranks = read(with(kSlurmStep, {{"PMI_RANK", "9"},
                                                       {"PMI_SIZE", "12"},
                                                       {"MPI_LOCALRANKID", "1"},
                                                       {"MPI_LOCALNRANKS", "4"},
                                                       {"MASTER_ADDR", "head"}}));
  EXPECT_EQ(ranks.rank, 9);
  EXPECT_EQ(ranks.local_rank, 1);
  EXPECT_EQ(ranks.node_rank, 2);
  EXPECT_EQ(ranks.source, "PMI");
}

TEST(RankEnvironment, RunsAloneInsideASlurmBatchScript) {
  const RankEnvironment ranks = read(without(kSlurmStep, "SLURM_STEP_ID"));
  EXPECT_EQ(ranks.world_size, 1);
  EXPECT_EQ(ranks.source, "none");
}

TEST(RankEnvironment, PrefersTheWorkersNamesToThoseOfTheSlurmStepAroundThem) {
  const RankEnvironment ranks = read(with(kSlurmStep, kTorchrunRank3));
  EXPECT_EQ(ranks.rank, 3);
  EXPECT_EQ(ranks.source, "torchrun");
}

TEST(RankEnvironment, AcceptsMpiNamesThatAgree) {
  EXPECT_EQ(
      read(with(kTorchrunRank3, {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}}))
          .rank,
      3);
}

struct Refusal {
  const char* name;
  Variables variables;
  std::vector<const char*> named;  // all of these stand in the message
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class RefusedEnvironment : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedEnvironment, IsAConfigErrorThatNamesTheVariables) {
  const std::string message = refusal(GetParam().variables);
  EXPECT_THAT(message, HasSubstr("ConfigError"));
  for (const char* name : GetParam().named) EXPECT_THAT(message, HasSubstr(name));
}

INSTANTIATE_TEST_SUITE_P(
    HalfSet, RefusedEnvironment,
    testing::Values(
        Refusal{"RankWithoutSize", {{"RANK", "0"}}, {"RANK", "WORLD_SIZE"}},
        Refusal{"SizeWithoutRank", {{"WORLD_SIZE", "2"}}, {"RANK", "WORLD_SIZE"}},
        Refusal{"LocalRankAlone", {{"LOCAL_RANK", "0"}}, {"LOCAL_RANK", "RANK", "WORLD_SIZE"}},
        Refusal{"NoMasterAddress", without(kTorchrunRank3, "MASTER_ADDR"), {"MASTER_ADDR"}},
        Refusal{"NoMasterPort", without(kTorchrunRank3, "MASTER_PORT"), {"MASTER_PORT"}},
        Refusal{"LocalSizeWithoutLocalRank",
                without(kTorchrunRank3, "LOCAL_RANK"),
                {"LOCAL_WORLD_SIZE", "LOCAL_RANK"}},
        Refusal{"OpenMpiRankWithoutSize",
                {{"OMPI_COMM_WORLD_RANK", "0"}},
                {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}},
        Refusal{
            "SlurmTaskWithoutNumber", {{"SLURM_PROCID", "0"}}, {"SLURM_PROCID", "SLURM_NTASKS"}},
        Refusal{"ManyMachinesWithoutAddress",
                {{"PMI_RANK", "1"},
                 {"PMI_SIZE", "2"},
                 {"MPI_LOCALRANKID", "0"},
                 {"MPI_LOCALNRANKS", "1"}},
                {"MASTER_ADDR"}},
        Refusal{"MachineUnknown",
                without(without(kTorchrunRank3, "LOCAL_WORLD_SIZE"), "NODE_RANK"),
                {"LOCAL_RANK", "RANK", "LOCAL_WORLD_SIZE"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Contradicting, RefusedEnvironment,
    testing::Values(Refusal{"RankNotBelowSize",
                            with(kTorchrunRank3, {{"RANK", "4"}}),
                            {"RANK=4", "WORLD_SIZE=4"}},
                    Refusal{"LocalRankNotBelowLocalSize",
                            with(kTorchrunRank3, {{"LOCAL_RANK", "2"}}),
                            {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"}},
                    Refusal{"MoreHereThanAnywhere",
                            with(kTorchrunRank3, {{"LOCAL_WORLD_SIZE", "8"}}),
                            {"LOCAL_WORLD_SIZE=8", "WORLD_SIZE=4"}},
                    Refusal{"LocalRankOfAnother",
                            with(kTorchrunRank3, {{"LOCAL_WORLD_SIZE", "4"}}),
                            {"LOCAL_RANK=1", "RANK=3"}},
                    Refusal{"TwoNodes",
                            with(kTorchrunRank3, {{"GROUP_RANK", "0"}}),
                            {"NODE_RANK=1", "GROUP_RANK=0"}},
                    Refusal{"MpiSaysAnotherRank",
                            with(kTorchrunRank3,
                                 {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
                            {"RANK=3", "OMPI_COMM_WORLD_RANK=1"}},
                    Refusal{"MpiSaysAnotherSize",
                            with(kTorchrunRank3, {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}}),
                            {"WORLD_SIZE=4", "PMI_SIZE=8"}},
                    Refusal{"PmiSaysAnotherRankThanTheSlurmStep",
                            with(kSlurmStep, {{"PMI_RANK", "4"}, {"PMI_SIZE", "7"}}),
                            {"SLURM_PROCID=5", "PMI_RANK=4"}},
                    Refusal{"PmiSaysAnotherSizeThanTheSlurmStep",
                            with(kSlurmStep, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}}),
                            {"SLURM_NTASKS=7", "PMI_SIZE=8"}},
                    Refusal{"TwoKindsOfMpi",
                            {{"OMPI_COMM_WORLD_RANK", "0"},
                             {"OMPI_COMM_WORLD_SIZE", "2"},
                             {"MV2_COMM_WORLD_RANK", "1"},
                             {"MV2_COMM_WORLD_SIZE", "2"}},
                            {"OMPI_COMM_WORLD_RANK=0", "MV2_COMM_WORLD_RANK=1"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    NotANumber, RefusedEnvironment,
    testing::Values(
        Refusal{"Word", with(kTorchrunRank3, {{"RANK", "three"}}), {"RANK='three'"}},
        Refusal{"Negative", with(kTorchrunRank3, {{"RANK", "-1"}}), {"RANK='-1'"}},
        Refusal{"Trailing", with(kTorchrunRank3, {{"WORLD_SIZE", "4x"}}), {"'4x'"}},
        Refusal{"NoRanks", with(kTorchrunRank3, {{"WORLD_SIZE", "0"}}), {"'0'"}},
        Refusal{"Overflow", with(kTorchrunRank3, {{"WORLD_SIZE", "99999999999"}}), {"WORLD_SIZE"}},
        Refusal{"Port", with(kTorchrunRank3, {{"MASTER_PORT", "70000"}}), {"MASTER_PORT"}}),
    [](const auto& info) { return info.param.name; });

TEST(ProcessState, StaysOnTheCpuWithoutGpu) {
  const ProcessState state = state_of(kTorchrunRank3, 0);
  EXPECT_TRUE(state.device().is_cpu());
  EXPECT_EQ(state.distributed_type(), DistributedType::kMultiCpu);
}

TEST(ProcessState, TakesTheGpuOfItsLocalRankModuloTheirNumber) {
  EXPECT_EQ(state_of(kTorchrunRank3, 4).device().str(), "cuda:1");
  EXPECT_EQ(state_of(kTorchrunRank3, 1).device().str(), "cuda:0");
  EXPECT_EQ(state_of(kTorchrunRank3, 4).distributed_type(), DistributedType::kMultiGpu);
  EXPECT_EQ(state_of({}, 2).device().str(), "cuda:0");
  EXPECT_EQ(state_of({}, 2).distributed_type(), DistributedType::kNo);
}

TEST(ProcessState, StaysOnTheCpuIfToldTo) {
  EXPECT_TRUE(state_of({}, 2, /*cpu=*/true).device().is_cpu());
  EXPECT_TRUE(state_of({{"ACCELERATE_USE_CPU", "True"}}, 2).device().is_cpu());
  EXPECT_FALSE(state_of({{"ACCELERATE_USE_CPU", "off"}}, 2).device().is_cpu());
}

TEST(ProcessState, TakesTheDeviceThatTheEnvironmentNames) {
  EXPECT_EQ(state_of({{"ACCELERATE_TORCH_DEVICE", "cuda:1"}}, 2).device().str(), "cuda:1");
  EXPECT_EQ(state_of({{"ACCELERATE_TORCH_DEVICE", "cuda"}}, 2).device().str(), "cuda:0");
  EXPECT_TRUE(state_of({{"ACCELERATE_TORCH_DEVICE", "cpu"}}, 2).device().is_cpu());
}

TEST(ProcessState, RefusesDevicesThatAreNotThereOrContradict) {
  EXPECT_THROW(state_of({{"ACCELERATE_TORCH_DEVICE", "cuda:2"}}, 2), ConfigError);
  EXPECT_THROW(state_of({{"ACCELERATE_TORCH_DEVICE", "cuda"}}, 0), ConfigError);
  EXPECT_THROW(state_of({{"ACCELERATE_TORCH_DEVICE", "abacus"}}, 2), ConfigError);
  EXPECT_THROW(state_of({{"ACCELERATE_TORCH_DEVICE", "cuda"}}, 2, /*cpu=*/true), ConfigError);
  EXPECT_THROW(state_of({{"ACCELERATE_USE_CPU", "perhaps"}}, 2), ConfigError);
}

// Another kind of device beside GPUs: IPU stands for one that was added.
TEST(ProcessState, TakesTheFirstKindOfDevicesThatThereIsUnlessOneIsNamed) {
  const auto device_among = [](int gpus, int ipus, const Variables& variables) {
    const std::vector<VisibleDevices> devices{{.type = c10::kCUDA, .count = gpus},
                                              {.type = c10::DeviceType::IPU, .count = ipus}};
    const ProcessState state = ProcessState::read(table(variables), devices, {});
    return state.device().str() + " of " + std::to_string(state.gpu_count());
  };
  EXPECT_EQ(device_among(2, 3, kTorchrunRank3), "cuda:1 of 2");
  EXPECT_EQ(device_among(0, 3, kTorchrunRank3), "ipu:1 of 3");
  EXPECT_EQ(device_among(2, 3, {{"ACCELERATE_TORCH_DEVICE", "ipu:2"}}), "ipu:2 of 3");
  EXPECT_EQ(device_among(2, 3, {{"ACCELERATE_TORCH_DEVICE", "ipu"}}), "ipu:0 of 3");
  EXPECT_EQ(device_among(2, 3, {{"ACCELERATE_USE_CPU", "true"}}), "cpu of 2");
  EXPECT_EQ(device_among(0, 0, {}), "cpu of 0");
  try {
    (void)device_among(1, 3, {{"ACCELERATE_TORCH_DEVICE", "ipu:3"}});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'ipu:3' is not a device of this machine, which has 1 "
                                        "GPU(s) and 3 ipu device(s)"));
    EXPECT_THAT(error.what(), HasSubstr("use cpu, cuda or cuda:N, ipu or ipu:N"));
  }
}

TEST(ProcessState, RanksOnAnyAcceleratorAreDistributedAsThoseOnGpusAre) {
  const ProcessState state =
      ProcessState::read(table(kTorchrunRank3), {{.type = c10::DeviceType::IPU, .count = 2}}, {});
  EXPECT_EQ(to_string(state.distributed_type()), "MULTI_GPU");
}

// As from_environment() asks: who must stay on the CPU is not told of any GPU.
TEST(ProcessState, NamesBothVariablesThatContradictAlsoWhereNoGpuIsSeen) {
  for (const int gpu_count : {0, 2}) {
    try {
      state_of({{"ACCELERATE_TORCH_DEVICE", "cuda"}, {"ACCELERATE_USE_CPU", "true"}}, gpu_count);
      FAIL() << "accepted";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("ACCELERATE_TORCH_DEVICE=cuda contradicts ACCELERATE_USE_CPU"));
    }
  }
}

TEST(ProcessState, KnowsWhoIsMainAndLast) {
  const ProcessState last = state_of(kTorchrunRank3, 0);
  EXPECT_FALSE(last.is_main_process());
  EXPECT_FALSE(last.is_local_main_process());
  EXPECT_TRUE(last.is_last_process());
  EXPECT_TRUE(state_of({}, 0).is_main_process());
  EXPECT_EQ(to_string(last.distributed_type()), "MULTI_CPU");
}

TEST(ProcessState, TrainsOnXlaDevicesInOneProcessThatNamesThem) {
  const std::vector<VisibleDevices> xla{{.type = c10::kXLA, .count = 1}};
  const auto state = [&](const Variables& variables, const ProcessStateOptions& options = {}) {
    return ProcessState::read(table(variables), xla, options);
  };
  EXPECT_EQ(state({}, {.device = "xla"}).device(), c10::Device("xla:0"));
  EXPECT_EQ(state({{"ACCELERATE_TORCH_DEVICE", "xla"}}).distributed_type(), DistributedType::kXla);
  EXPECT_EQ(state({{"ACCELERATE_TORCH_DEVICE", "xla"}}, {.device = "cpu"}).device(), c10::kCPU);
  EXPECT_EQ(to_string(DistributedType::kXla), "XLA");
  try {
    (void)state(kTorchrunRank3, {.device = "xla"});
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.message(),
              "4 processes cannot train together on XLA devices: one process drives all devices "
              "of its machine");
  }
}

}  // namespace
}  // namespace accelerate
