#include "base/nccl_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace accelerate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Set = std::map<std::string, std::string>;

NcclVariableLookup table(const Set& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::vector<std::string> lines(const std::vector<NcclVariable>& variables) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : variables) lines.push_back(name + "=" + value);
  return lines;
}

TEST(SharedGpuVariables, GiveEachRankAHostOfItsOwnAndTheLoopbackInterface) {
  EXPECT_THAT(lines(shared_gpu_variables(table({}), 0, true)),
              ElementsAre("NCCL_HOSTID=accelerate-rank-0", "NCCL_SOCKET_IFNAME=lo"));
  EXPECT_THAT(lines(shared_gpu_variables(table({{"NCCL_HOSTID", "mine"}}), 13, true)),
              ElementsAre("NCCL_HOSTID=accelerate-rank-13", "NCCL_SOCKET_IFNAME=lo"));
}

TEST(SharedGpuVariables, LeaveTheNetworkToWhoeverNamedOneAndToSeveralMachines) {
  EXPECT_THAT(lines(shared_gpu_variables(table({{"NCCL_SOCKET_IFNAME", "eth0"}}), 1, true)),
              ElementsAre("NCCL_HOSTID=accelerate-rank-1"));
  EXPECT_THAT(lines(shared_gpu_variables(table({}), 1, false)),
              ElementsAre("NCCL_HOSTID=accelerate-rank-1"));
}

TEST(FailureVariables, SwitchOffWhatEndsTheProcessUnlessTheUserHasSaidOtherwise) {
  EXPECT_THAT(lines(failure_variables(table({}))),
              ElementsAre("TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "TORCH_NCCL_ENABLE_MONITORING=0",
                          "TORCH_NCCL_RETHROW_CUDA_ERRORS=0", "TORCH_NCCL_DUMP_ON_TIMEOUT=0",
                          "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=0"));
  EXPECT_THAT(lines(failure_variables(table({{"NCCL_ASYNC_ERROR_HANDLING", "1"},
                                             {"TORCH_NCCL_DUMP_ON_TIMEOUT", "1"},
                                             {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "9"}}))),
              ElementsAre("TORCH_NCCL_ENABLE_MONITORING=0", "TORCH_NCCL_RETHROW_CUDA_ERRORS=0"));
}

TEST(FailureVariables, NamesThoseByWhichLibtorchMayEndTheProcess) {
  EXPECT_THAT(foreign_failure_settings(table({})), IsEmpty());
  EXPECT_THAT(foreign_failure_settings(table({{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"}})),
              IsEmpty());
  EXPECT_THAT(foreign_failure_settings(table({{"NCCL_ASYNC_ERROR_HANDLING", "3"},
                                              {"TORCH_NCCL_ENABLE_MONITORING", "1"},
                                              {"TORCH_NCCL_RETHROW_CUDA_ERRORS", "0"}})),
              ElementsAre("NCCL_ASYNC_ERROR_HANDLING=3", "TORCH_NCCL_ENABLE_MONITORING=1"));
}

}  // namespace
}  // namespace accelerate
