// A process that has initialised CUDA cannot be forked.
#include <accelerate/accelerate.h>
#include <accelerate/notebook.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>

#include "notebook/false_driver_path.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kReason =
    "notebook_launcher cannot start workers: CUDA was initialised in this process, and a forked "
    "process cannot use it";

bool has_gpu() { return std::filesystem::exists("/dev/nvidiactl"); }

std::string refusal() {
  try {
    notebook_launcher([] {}, {.num_processes = 2});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}

// A driver that is loaded and says that it was initialised.
TEST(NotebookCuda, AnInitialisedDriverIsARefusal) {
  if (has_gpu()) GTEST_SKIP() << "the driver of this machine would be taken for the false one";
  EXPECT_EQ(refusal(), "nothing was refused");
  void* driver = dlopen(false_driver_path(), RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  auto& answer = *static_cast<int*>(dlsym(driver, "answer"));
  answer = 3;  // CUDA_ERROR_NOT_INITIALIZED: a library that is only loaded does no harm
  EXPECT_EQ(refusal(), "nothing was refused");
  answer = 0;
  EXPECT_THAT(refusal(), HasSubstr(kReason));
  dlclose(driver);
}

TEST(NotebookCuda, WorkersUseTheGpuUntilTheCallerHas) {
  if (!has_gpu()) GTEST_SKIP() << "this machine has no GPU";
  // Two ranks on one GPU: no collectives here.
  const auto devices = notebook_launcher(
      [] {
        const ProcessState state = ProcessState::from_environment();
        return torch::ones({2}, state.device()).sum().cpu();
      },
      {.num_processes = 2});
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1].item<float>(), 2);

  const ProcessState state = ProcessState::from_environment();
  EXPECT_EQ(torch::ones({2}, state.device()).sum().item<float>(), 2);
  EXPECT_THAT(refusal(), HasSubstr(kReason));
}

}  // namespace
}  // namespace accelerate::test
