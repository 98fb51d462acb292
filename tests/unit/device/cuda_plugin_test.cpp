#include "device/cuda_plugin.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <filesystem>
#include <string>

#include "base/library_version.h"

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
