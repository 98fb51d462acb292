// Under which rank a process speaks, whoever started it.
#include "base/own_rank.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/log.h"
#include "base/rank_names.h"

namespace accelerate {
namespace {

using RankVariables = std::map<std::string, std::string>;

// The rank in a log line of a process with these variables.
std::string spoken_rank(const RankVariables& variables) {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MPI_LOCALRANKID",
                           "MV2_COMM_WORLD_RANK", "SLURM_PROCID", "SLURM_STEP_ID"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  testing::internal::CaptureStderr();
  log(LogLevel::kError, "x");
  const std::string line = testing::internal::GetCapturedStderr();
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return line.substr(0, line.find("error: x"));
}

TEST(OwnRank, IsTheOneThatTheLauncherGaveInItsOwnWords) {
  EXPECT_EQ(spoken_rank({}), "");
  EXPECT_EQ(spoken_rank({{"RANK", "1"}}), "[rank 1] ");
  EXPECT_EQ(spoken_rank({{"OMPI_COMM_WORLD_RANK", "2"}}), "[rank 2] ");
  EXPECT_EQ(spoken_rank({{"PMI_RANK", "3"}, {"MPI_LOCALRANKID", "1"}}), "[rank 3] ");
  EXPECT_EQ(spoken_rank({{"MV2_COMM_WORLD_RANK", "4"}}), "[rank 4] ");
  EXPECT_EQ(spoken_rank({{"SLURM_PROCID", "5"}, {"SLURM_STEP_ID", "0"}}), "[rank 5] ");
}

TEST(OwnRank, IsChosenAsTheAcceleratorChooses) {
  EXPECT_EQ(spoken_rank({{"RANK", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}}),
            "[rank 1] ");
  // mpirun inside of a batch script, and srun with PMI.
  EXPECT_EQ(spoken_rank({{"OMPI_COMM_WORLD_RANK", "2"}, {"SLURM_PROCID", "0"}}), "[rank 2] ");
  EXPECT_EQ(spoken_rank({{"PMI_RANK", "7"}, {"SLURM_PROCID", "5"}, {"SLURM_STEP_ID", "0"}}),
            "[rank 5] ");
  // A number that is none does not hide the next family.
  EXPECT_EQ(spoken_rank({{"RANK", "x"}, {"MV2_COMM_WORLD_RANK", "4"}}), "[rank 4] ");
  // A batch script that srun did not start.
  EXPECT_EQ(spoken_rank({{"SLURM_PROCID", "0"}}), "");
}

std::vector<std::string> families(const RankVariables& variables) {
  std::vector<std::string> names;
  for (const RankNames* family : rank_families([&](const char* name) {
         const auto found = variables.find(name);
         return found == variables.end() ? std::nullopt : std::optional(found->second);
       })) {
    names.emplace_back(family->source);
  }
  return names;
}

TEST(RankNames, AreAskedInOneOrderByAll) {
  EXPECT_EQ(families({}), (std::vector<std::string>{"torchrun", "Open MPI", "PMI", "MVAPICH"}));
  EXPECT_EQ(families({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}}),
            (std::vector<std::string>{"torchrun", "Open MPI", "MVAPICH", "SLURM"}));
  EXPECT_EQ(families({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"MPI_LOCALRANKID", "0"}}),
            (std::vector<std::string>{"torchrun", "Open MPI", "PMI", "MVAPICH", "SLURM"}));
  EXPECT_EQ(families({{"SLURM_STEP_ID", ""}, {"SLURM_PROCID", "1"}}),
            (std::vector<std::string>{"torchrun", "Open MPI", "PMI", "MVAPICH"}));
}

}  // namespace
}  // namespace accelerate
