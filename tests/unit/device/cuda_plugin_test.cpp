#include "device/cuda_plugin.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/process_state.h"
#include "base/library_version.h"
#include "launch/plan/worker_environment.h"

namespace accelerate::device {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The build puts the stand-ins beside the folder of the test programs.
std::filesystem::path stand_in(const std::string& name) {
  return std::filesystem::canonical("/proc/self/exe").parent_path().parent_path() / "stand_ins" /
         ("lib" + name + ".so");
}

class CudaPluginTest : public testing::Test {
 protected:
  void SetUp() override {
    void* library = dlopen(file_.c_str(), RTLD_NOW);
    ASSERT_NE(library, nullptr) << dlerror();
    version_ = static_cast<CudaPluginVersion*>(dlsym(library, "stand_in_version"));
    ASSERT_NE(version_, nullptr);
    *version_ = {kCudaPluginTable, library_version(), TORCH_VERSION};
  }

  // What is said about a plug-in that claims the present version_.
  std::string refusal() const {
    const OpenedCudaPlugin opened = open_cuda_plugin(file_);
    EXPECT_EQ(opened.plugin, nullptr);
    EXPECT_TRUE(opened.wrong_version);
    try {
      gpu_count(opened);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.hint(),
                "install both from one build, or set ACCELERATE_USE_CPU=true to train without "
                "GPUs");
      return error.message();
    }
    ADD_FAILURE() << "the plug-in was taken";
    return {};
  }

  const std::filesystem::path file_ = stand_in("stand_in_plugin");
  const std::string own_ = std::string(", this library to Accelerate ") + library_version() +
                           " for torch " + TORCH_VERSION + " (table " +
                           std::to_string(kCudaPluginTable) + ")";
  CudaPluginVersion* version_ = nullptr;
};

// Before libtorch_cuda has; see also tests/cuda.
TEST(CudaPluginHooks, LibtorchAsksThisLibraryForItsCudaHalf) {
  EXPECT_TRUE(at::CUDAHooksRegistry()->Has("CUDAHooks"));
  at::manual_seed(1);  // asks
  EXPECT_EQ(at::hasCUDA(), has_cuda());
}

TEST_F(CudaPluginTest, APluginOfTheSameBuildIsTaken) {
  const OpenedCudaPlugin opened = open_cuda_plugin(file_);
  EXPECT_EQ(opened.problem.what, "");
  ASSERT_NE(opened.plugin, nullptr);
  EXPECT_EQ(gpu_count(opened), 2);
}

launch::LaunchPlan plan_of_workers() {
  launch::LaunchPlan plan;
  plan.main_port = 29501;
  return plan;
}

// The GPUs of the machine that the workers of a job take, by local rank, as the launcher starts
// them and the driver numbers them: "0 1 0".
std::string gpus_of_workers(const CudaPlugin& plugin, const launch::LaunchPlan& plan) {
  std::string taken;
  for (int local_rank = 0; local_rank < plan.processes_per_machine(); ++local_rank) {
    std::map<std::string, std::string> variables;
    for (const std::string& line : launch::worker_environment(plan, local_rank, {}, {})) {
      const size_t equals = line.find('=');
      variables[line.substr(0, equals)] = line.substr(equals + 1);
    }
    const auto lookup = [&](const char* name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
    const auto visible = lookup("CUDA_VISIBLE_DEVICES");
    if (visible) {
      setenv("CUDA_VISIBLE_DEVICES", visible->c_str(), 1);
    } else {
      unsetenv("CUDA_VISIBLE_DEVICES");
    }
    const ProcessState state = ProcessState::read(lookup, plugin.device_count(), {});
    taken +=
        (taken.empty() ? "" : " ") +
        (state.device().is_cpu() ? "cpu" : plugin.device_uuid(state.device().index()).substr(4));
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
  return taken;
}

class WorkersOnGpus : public CudaPluginTest, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    CudaPluginTest::SetUp();
    *static_cast<int*>(dlsym(dlopen(file_.c_str(), RTLD_NOW), "stand_in_gpus")) = GetParam();
    plugin_ = open_cuda_plugin(file_).plugin;
    ASSERT_NE(plugin_, nullptr);
  }

  // The first `count` of `gpus`, and from the beginning again where there are too few.
  static std::string in_turn(const std::vector<int>& gpus, int count) {
    std::string text;
    for (int worker = 0; worker < count; ++worker) {
      text += (worker == 0 ? "" : " ") +
              std::to_string(gpus[static_cast<size_t>(worker) % gpus.size()]);
    }
    return text;
  }

  const CudaPlugin* plugin_ = nullptr;
};

TEST_P(WorkersOnGpus, EachWorkerTakesTheGpuOfItsLocalRankAndThoseLeftOverShare) {
  const int present = GetParam();
  std::vector<int> all(static_cast<size_t>(present));
  std::iota(all.begin(), all.end(), 0);
  for (int workers = 1; workers <= 9; ++workers) {
    launch::LaunchPlan plan = plan_of_workers();
    plan.num_processes = workers;
    EXPECT_EQ(gpus_of_workers(*plugin_, plan), in_turn(all, workers)) << workers << " workers";
    plan.gpu_ids = "all";
    EXPECT_EQ(gpus_of_workers(*plugin_, plan), in_turn(all, workers)) << workers << " workers";
  }
}

TEST_P(WorkersOnGpus, GpuIdsSayWhichGpusInWhichOrder) {
  const int present = GetParam();
  for (int first = 0; first < present; ++first) {
    // From the last one down to `first`.
    std::vector<int> named;
    std::string ids;
    for (int gpu = present - 1; gpu >= first; --gpu) {
      named.push_back(gpu);
      ids += (ids.empty() ? "" : ",") + std::to_string(gpu);
    }
    for (const int workers : {1, 2, 5, 8}) {
      launch::LaunchPlan plan = plan_of_workers();
      plan.num_processes = workers;
      plan.gpu_ids = ids;
      EXPECT_EQ(gpus_of_workers(*plugin_, plan), in_turn(named, workers))
          << workers << " workers on " << ids;
    }
  }
}

TEST_P(WorkersOnGpus, GpusThatAreNotThereEndTheListAsTheDriverReadsIt) {
  launch::LaunchPlan plan = plan_of_workers();
  plan.num_processes = 2;
  plan.gpu_ids = "0," + std::to_string(GetParam()) + ",0";
  EXPECT_EQ(gpus_of_workers(*plugin_, plan), "0 0");
  plan.gpu_ids = std::to_string(GetParam());
  EXPECT_EQ(gpus_of_workers(*plugin_, plan), "cpu cpu");
}

TEST_P(WorkersOnGpus, LocalRanksCountOnEachMachine) {
  launch::LaunchPlan plan = plan_of_workers();
  plan.num_machines = 2;
  plan.machine_rank = 1;
  plan.main_address = "10.0.0.1";
  plan.num_processes = 4;
  std::vector<int> all(static_cast<size_t>(GetParam()));
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(gpus_of_workers(*plugin_, plan), in_turn(all, 2));
}

INSTANTIATE_TEST_SUITE_P(OneToEight, WorkersOnGpus, testing::Range(1, 9));

TEST_F(CudaPluginTest, APluginOfAnotherVersionIsRefused) {
  version_->accelerate = "9.8.7";
  EXPECT_EQ(refusal(), file_.string() + " belongs to Accelerate 9.8.7 for torch " + TORCH_VERSION +
                           " (table " + std::to_string(kCudaPluginTable) + ")" + own_);
}

TEST_F(CudaPluginTest, APluginForAnotherTorchIsRefused) {
  version_->torch = "1.2.3";
  EXPECT_EQ(refusal(), file_.string() + " belongs to Accelerate " + library_version() +
                           " for torch 1.2.3 (table " + std::to_string(kCudaPluginTable) + ")" +
                           own_);
}

TEST_F(CudaPluginTest, APluginWithAnotherTableIsRefused) {
  version_->table = kCudaPluginTable + 1;
  EXPECT_EQ(refusal(), file_.string() + " belongs to Accelerate " + library_version() +
                           " for torch " + TORCH_VERSION + " (table " +
                           std::to_string(kCudaPluginTable + 1) + ")" + own_);
}

TEST_F(CudaPluginTest, APluginWithoutAVersionIsRefused) {
  const auto file = stand_in("unversioned_plugin");
  const OpenedCudaPlugin opened = open_cuda_plugin(file);
  EXPECT_EQ(opened.plugin, nullptr);
  EXPECT_TRUE(opened.wrong_version);
  EXPECT_EQ(opened.problem.what,
            file.string() + " belongs to an older build without a version" + own_);
  EXPECT_THROW(gpu_count(opened), ConfigError);
}

// A machine with a driver may have a build without the CUDA part: no GPUs, but no error either.
TEST_F(CudaPluginTest, AMissingPluginMeansNoGpus) {
  const OpenedCudaPlugin opened = open_cuda_plugin("/nowhere/libaccelerate_cuda.so");
  EXPECT_FALSE(opened.wrong_version);
  EXPECT_THAT(opened.problem.what, AllOf(HasSubstr("/nowhere/libaccelerate_cuda.so"),
                                         HasSubstr("No such file"), Not(HasSubstr("\n"))));
  EXPECT_EQ(gpu_count(opened), 0);
}

}  // namespace
}  // namespace accelerate::device
