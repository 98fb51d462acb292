// What is said of XLA devices before anything of XLA is opened: every build can say it.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <torch/torch.h>
#include <torch/version.h>

#include <filesystem>
#include <fstream>

#include "accelerate/accelerate.h"
#include "compat/moved_handles.h"
#include "compat/xla/client.h"
#include "compat/xla/file_symbols.h"
#include "compat/xla/installation.h"
#include "compat/xla/torch_tpu.h"
#include "compat/xla/tpu_hardware.h"
#include "device/xla_step_watch.h"

namespace accelerate {
namespace {

namespace fs = std::filesystem;
using device::XlaStepWatch;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

template <class Refusal, class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const Refusal& error) {
    return error.message() + " | " + error.hint();
  }
  return "accepted";
}

class XlaDoor : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "accelerate_door_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }
  void install(const std::string& torch, const std::string& xla) const {
    write("torch/version.py", "from typing import Optional\n__version__ = '" + torch + "'\n");
    write("torch_xla/version.py", "# made\n__version__ = '" + xla + "'\n");
    write("_XLAC.cpython-311-x86_64-linux-gnu.so", "");
    write("stand_ins/libtorch.so", "");
  }
  compat::XlaSearch search(const std::string& torch = "2.9.0") const {
    return {.packages = folder_, .stand_ins = folder_ / "stand_ins", .torch = torch};
  }
  std::string answer(const compat::XlaSearch& where) const {
    return refusal_of<ConfigError>([&] { (void)compat::find_xla(where); });
  }

  fs::path folder_;
};

TEST_F(XlaDoor, TakesTheOnePairThatIsSupported) {
  install("2.9.0+cu128", "2.9.0");
  EXPECT_EQ(answer(search()), "accepted");
  EXPECT_EQ(compat::find_xla(search()).library, folder_ / "_XLAC.cpython-311-x86_64-linux-gnu.so");
}

TEST_F(XlaDoor, RefusesEveryOtherPairInOneLine) {
  install("2.9.0", "2.9.0");
  EXPECT_EQ(answer(search("2.11.0")),
            "this library was built with torch 2.11.0, and XLA devices need torch_xla 2.9.0 with "
            "torch 2.9.0 | build it with that pair: make deps-xla and make build PRESET=xla");
  install("2.9.0", "2.8.1");
  EXPECT_EQ(answer(search()),
            "torch_xla 2.8.1 with torch 2.9.0 cannot be used: XLA devices need torch_xla 2.9.0 "
            "with torch 2.9.0 | make deps-xla installs that pair");
  install("2.9.1+cpu", "2.9.0");
  EXPECT_THAT(answer(search()), HasSubstr("torch_xla 2.9.0 with torch 2.9.1 cannot be used"));
}

TEST_F(XlaDoor, NamesTheCommandThatInstallsIt) {
  EXPECT_EQ(answer(search()),
            "torch_xla is not installed beside torch | make deps-xla installs both, and a build "
            "with PRESET=xla uses them");
  install("2.9.0", "2.9.0");
  fs::remove(folder_ / "_XLAC.cpython-311-x86_64-linux-gnu.so");
  EXPECT_THAT(answer(search()), HasSubstr("is there without _XLAC.cpython-311"));
  install("2.9.0", "2.9.0");
  fs::remove_all(folder_ / "stand_ins");
  EXPECT_THAT(answer(search()), HasSubstr("stand in for Python's are missing"));
}

TEST_F(XlaDoor, ReadsVersionsAsPackagesWriteThem) {
  write("a.py", "__version__ = \"2.9.0\"\n");
  EXPECT_EQ(compat::version_in(folder_ / "a.py"), "2.9.0");
  write("b.py", "version = 'no'\n");
  EXPECT_EQ(compat::version_in(folder_ / "b.py"), std::nullopt);
  EXPECT_EQ(compat::version_in(folder_ / "nowhere.py"), std::nullopt);
}

TEST_F(XlaDoor, KnowsATpuByItsNumberOnThePciBus) {
  EXPECT_FALSE(compat::has_tpu(folder_));
  write("sys/bus/pci/devices/0000:00:04.0/vendor", "0x1ae0\n");
  write("sys/bus/pci/devices/0000:00:04.0/device", "0x0042\n");  // a network card of Google's
  EXPECT_FALSE(compat::has_tpu(folder_));
  write("sys/bus/pci/devices/0000:00:05.0/vendor", "0x1ae0\n");
  write("sys/bus/pci/devices/0000:00:05.0/device", "0x0063\n");
  EXPECT_TRUE(compat::has_tpu(folder_));
  fs::remove_all(folder_ / "sys");
  write("dev/accel0", "");
  EXPECT_TRUE(compat::has_tpu(folder_));
}

TEST_F(XlaDoor, LooksForTorchTpuAndForHardwareBeforeItLoadsAnything) {
  const auto refusal = [&] {
    return refusal_of<ConfigError>([&] { compat::refuse_torch_tpu(folder_, folder_); });
  };
  EXPECT_THAT(refusal(), HasSubstr("torch_tpu is not installed beside torch"));
  write("torch_tpu-0.2.0.dist-info/METADATA", "");
  EXPECT_THAT(refusal(), HasSubstr("torch_tpu 0.2.0 needs a TPU, and this machine has none"));
  write("dev/accel0", "");
  EXPECT_THAT(refusal(), HasSubstr("does not train with torch_tpu yet"));
}

TEST_F(XlaDoor, FindsFunctionsThatALibraryDoesNotExport) {
  const auto refusal = [&](const fs::path& file) {
    return refusal_of<ConfigError>(
        [&] { (void)compat::functions_in_symtab(file, dlopen(nullptr, RTLD_NOW), {"main"}); });
  };
  write("text", std::string(4096, 'x'));
  EXPECT_THAT(refusal(folder_ / "text"), HasSubstr("not a library of this machine"));
  write("short", "x");
  EXPECT_THAT(refusal(folder_ / "short"), HasSubstr("cut off"));
  EXPECT_THAT(refusal(folder_ / "nowhere"), HasSubstr("cannot be read"));
  const auto found = compat::functions_in_symtab("/proc/self/exe", dlopen(nullptr, RTLD_NOW),
                                                 {"main", "there_is_no_such_function"});
  EXPECT_NE(found[0], nullptr);
  EXPECT_EQ(found[1], nullptr);
}

// --- The steps --------------------------------------------------------------------------------

std::vector<std::string> after(XlaStepWatch& watch, int64_t compiled,
                               XlaStepWatch::Counts counts = {}) {
  return watch.after_step(compiled, [&] { return counts; });
}

TEST(XlaStepWatch, SaysWhenCompilingGoesOnAfterTheThirdStep) {
  XlaStepWatch watch;
  for (const int64_t compiled : {1, 1, 1}) EXPECT_THAT(after(watch, compiled), IsEmpty());
  EXPECT_THAT(after(watch, 0), IsEmpty());
  EXPECT_THAT(after(watch, 1, {.compilations = 4}),
              ElementsAre(HasSubstr("XLA compiled step 5 anew (4 programs so far)")));
  EXPECT_EQ(after(watch, 1).size(), 1U);
  EXPECT_THAT(after(watch, 1), IsEmpty());  // the third: told at 1, 2, 4, 8 ...
  EXPECT_EQ(after(watch, 1).size(), 1U);
  watch.expect_programs();
  EXPECT_THAT(after(watch, 1), IsEmpty());
}

TEST(XlaStepWatch, NamesWhatWasLeftToTheCpuOnce) {
  XlaStepWatch watch;
  const XlaStepWatch::Counts counts{.compilations = 1,
                                    .on_the_host = {{"aten::nonzero", 2}, {"aten::sum", 0}}};
  EXPECT_THAT(after(watch, 1, counts), ElementsAre(HasSubstr("XLA left aten::nonzero to the CPU")));
  EXPECT_THAT(after(watch, 1, counts), IsEmpty());
}

// --- Handles, moved to tensors of another kind ------------------------------------------------

struct OwnMembersImpl : torch::nn::Module {
  torch::nn::Linear layer{3, 2};
  torch::Tensor scale, mean;
  OwnMembersImpl() {
    register_module("layer", layer);
    scale = register_parameter("scale", torch::ones({2}));
    mean = register_buffer("mean", torch::ones({2}));
  }
};
TORCH_MODULE(OwnMembers);

TEST(MovedHandles, FollowsDictionariesMembersAndOptimizers) {
  compat::MovedHandles moved;
  OwnMembers net;
  torch::optim::SGD sgd(net->parameters(), 0.1);
  moved.move(*net, c10::kMeta);
  for (const auto& tensor : {net->scale, net->mean, net->layer->weight, net->layer->bias}) {
    EXPECT_TRUE(tensor.is_meta());
  }
  EXPECT_TRUE(net->scale.requires_grad());
  EXPECT_TRUE(net->named_buffers()["mean"].is_same(net->mean));
  EXPECT_THAT(refusal_of<UsageError>([&] { moved.require_all_followed(); }),
              HasSubstr("moved to meta, and 1 other handle(s) still hold"));
  moved.follow(sgd);
  EXPECT_TRUE(sgd.param_groups()[0].params()[0].is_meta());
  EXPECT_EQ(refusal_of<UsageError>([&] { moved.require_all_followed(); }), "accepted");
}

TEST(MovedHandles, FollowsAnObjectOfMakeShared) {
  compat::MovedHandles moved;
  const auto net = std::make_shared<OwnMembersImpl>();
  moved.move(*net, c10::kMeta);
  EXPECT_TRUE(net->scale.is_meta());
  EXPECT_TRUE(net->layer->bias.is_meta());
  moved.require_all_followed();
}

struct TiedImpl : torch::nn::Module {
  explicit TiedImpl(const at::Tensor& shared) : weight(register_parameter("weight", shared)) {}
  torch::Tensor weight;
};

TEST(MovedHandles, FollowsModulesThatShareAParameter) {
  compat::MovedHandles moved;
  OwnMembers one;
  const auto other = std::make_shared<TiedImpl>(one->layer->weight);
  moved.move(*one, c10::kMeta);
  moved.move(*other, c10::kMeta);
  EXPECT_TRUE(other->weight.is_same(one->layer->weight));
  EXPECT_EQ(refusal_of<UsageError>([&] { moved.require_all_followed(); }), "accepted");
}

TEST(MovedHandles, RefusesAParameterWhoseHooksWouldBeLost) {
  compat::MovedHandles moved;
  OwnMembers net;
  net->layer->bias.register_hook([](const at::Tensor& grad) { return grad; });
  EXPECT_THAT(refusal_of<UsageError>([&] { moved.move(*net, c10::kMeta); }),
              HasSubstr("'layer.bias' has hooks of its gradient, which cannot follow it to meta | "
                        "register them after prepare()"));
  EXPECT_TRUE(net->layer->weight.is_cpu());
}

TEST(MovedHandles, NamesWhatSomebodyElseHolds) {
  compat::MovedHandles moved;
  OwnMembers net;
  const at::Tensor kept = net->layer->bias;
  moved.move(*net, c10::kMeta);
  EXPECT_THAT(refusal_of<UsageError>([&] { moved.require_all_followed(); }),
              HasSubstr("'layer.bias' moved to meta"));
}

// --- Modules that are born on a device --------------------------------------------------------

TEST(InitOnDevice, MakesParametersAndBuffersThere) {
  OwnMembers net = nullptr;
  {
    const auto on_meta = init_on_device(c10::kMeta);
    net = OwnMembers();
  }
  for (const auto& parameter : net->parameters()) EXPECT_TRUE(parameter.is_meta());
  EXPECT_TRUE(net->mean.is_meta());
  EXPECT_TRUE(torch::ones({1}).is_cpu());  // after its end
}

TEST(InitOnDevice, LeavesAloneWhatReadsTensorsToDraw) {
  const InitOnDevice scope(c10::kMeta);
  at::Tensor out = torch::zeros({4});
  const at::Tensor mean = torch::ones({4});
  EXPECT_TRUE(out.normal_().is_meta());
  EXPECT_TRUE(at::normal_out(out, mean, mean).is_same(out));
  EXPECT_TRUE(out.bernoulli_(mean).is_meta());
}

TEST(InitOnDevice, DrawsAsTheCpuDoes) {
  torch::manual_seed(3);
  const torch::nn::Linear expected(4, 4);
  torch::manual_seed(3);
  const InitOnDevice scope(c10::kCPU);
  const torch::nn::Linear born(4, 4);
  EXPECT_TRUE(born->weight.equal(expected->weight));
  EXPECT_THAT(refusal_of<UsageError>([] { (void)init_on_device(c10::kMeta); }),
              HasSubstr("init_on_device() inside of another one"));
  EXPECT_EQ(torch::tensor({1.0F, 2.0F})[1].item<float>(), 2);
}

// --- Accelerators -----------------------------------------------------------------------------

TEST(AcceleratorDevice, IsTheOneThatIsNamed) {
  EXPECT_TRUE(Accelerator({.device = "cpu"}).device().is_cpu());
  EXPECT_THAT(refusal_of<ConfigError>([] { Accelerator({.device = "frob"}); }),
              HasSubstr("'frob' is not a device of this machine"));
  EXPECT_THAT(refusal_of<ConfigError>([] { Accelerator({.cpu = true, .device = "xla"}); }),
              HasSubstr("the option device = \"xla\" contradicts the option cpu"));
}

TEST(AcceleratorDevice, RefusesXlaWhereThisBuildHasNone) {
  if (std::string(TORCH_VERSION) == compat::kTorchOfXla) GTEST_SKIP() << "this build has it";
  EXPECT_THAT(refusal_of<ConfigError>([] { Accelerator({.device = "xla"}); }),
              HasSubstr(std::string("this library was built with torch ") + TORCH_VERSION));
  EXPECT_FALSE(compat::xla_is_open());
}

TEST(AcceleratorDevice, RefusesTorchTpuWithoutATpu) {
  EXPECT_THAT(refusal_of<ConfigError>([] { Accelerator({.device = "tpu"}); }),
              HasSubstr("torch_tpu"));
}

TEST(AcceleratorDevice, RefusesSpmdOfXlaElsewhere) {
  EXPECT_THAT(refusal_of<UsageError>([] {
                Accelerator({.cpu = true, .strategy = XlaSpmdOptions{.shard_parameters = true}});
              }),
              HasSubstr("XlaSpmdOptions on cpu"));
}

TEST(AcceleratorDevice, RandomStatesOfXlaNeedAnXlaDevice) {
  const Accelerator accelerator({.cpu = true});
  EXPECT_EQ(RngType("xla").value(), RngType::kXla);
  EXPECT_THAT(refusal_of<UsageError>([&] { synchronize_rng_states(accelerator, {"xla"}); }),
              HasSubstr("there is no XLA device"));
}

}  // namespace
}  // namespace accelerate
