// Loading checkpoints into models.
#include <accelerate/model_files.h>
#include <accelerate/torch_archive.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "unit/checkpoint/model_files_models.h"
#include "unit/files/safetensors_files.h"

namespace accelerate {
namespace {

using test::copy_of;
using test::same_state;
using test::SmallNet;
using test::TiedNet;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using LoadModel = test::ScratchFolder;

TEST_F(LoadModel, TakesAFileAFolderAndAnIndexOfEitherFormat) {
  for (const bool safe : {true, false}) {
    for (const ShardSize size : {ShardSize("10GB"), ShardSize(60)}) {
      const SmallNet net;
      save_model(*net, folder_, {.max_shard_size = size, .safe_serialization = safe});
      std::vector<std::filesystem::path> paths{folder_};
      for (const std::string& name : entries()) {
        if (name.ends_with(".json") || entries().size() == 1) paths.push_back(folder_ / name);
      }
      for (const auto& path : paths) {
        SmallNet loaded;
        const LoadReport report = load_checkpoint_in_model(*loaded, path);
        EXPECT_THAT(report.missing_keys, IsEmpty());
        EXPECT_THAT(report.unexpected_keys, IsEmpty());
        EXPECT_TRUE(same_state(get_state_dict(*loaded), get_state_dict(*net))) << path;
        EXPECT_EQ(load_state_dict(path).size(), 11U);
      }
    }
  }
}

TEST_F(LoadModel, PrefersTheArchiveThenTheOneFileThenTheIndexOfAFolder) {
  accelerate::save(NamedTensors{{"scale", torch::full({1}, 3.0)}}, folder_ / "m-1.bin");
  write("other.index.json", R"({"scale":"m-1.bin"})");
  SmallNet net;
  load_checkpoint_in_model(*net, folder_);
  EXPECT_EQ(net->scale.item<float>(), 3);
  save_safetensors(folder_ / "model.safetensors", {{"scale", torch::full({1}, 2.0)}});
  load_checkpoint_in_model(*net, folder_);
  EXPECT_EQ(net->scale.item<float>(), 2);
  accelerate::save(NamedTensors{{"scale", torch::full({1}, 1.0)}}, folder_ / "pytorch_model.bin");
  load_checkpoint_in_model(*net, folder_);
  EXPECT_EQ(net->scale.item<float>(), 1);
}

TEST_F(LoadModel, ReportsMissingAndUnexpectedNames) {
  save_safetensors(folder_ / "w.safetensors",
                   {{"scale", torch::full({1}, 5.0)}, {"new", torch::ones({1})}});
  SmallNet net;
  const LoadReport report = load_checkpoint_in_model(*net, folder_ / "w.safetensors");
  EXPECT_EQ(report.missing_keys.size(), 10U);
  EXPECT_EQ(report.missing_keys.front(), "count");
  EXPECT_THAT(report.unexpected_keys, ElementsAre("new"));
  EXPECT_EQ(net->scale.item<float>(), 5);
}

TEST_F(LoadModel, KeepsParametersTheyAreAndTheirTypes) {
  save_safetensors(folder_ / "w.safetensors", {{"scale", torch::full({1}, 5.0, torch::kDouble)},
                                               {"count", torch::tensor({7, 8, 9}, torch::kInt)}});
  SmallNet net;
  torch::optim::SGD optimizer(net->parameters(), 0.5);
  net->scale.mutable_grad() = torch::ones({1});
  load_checkpoint_in_model(*net, folder_ / "w.safetensors");
  EXPECT_EQ(net->scale.scalar_type(), at::kFloat);
  EXPECT_TRUE(net->scale.requires_grad());
  EXPECT_TRUE(torch::equal(net->count, torch::tensor({7, 8, 9})));
  optimizer.step();
  EXPECT_EQ(net->scale.item<float>(), 4.5);
}

TEST_F(LoadModel, CastsFloatsAloneToTheTypeThatIsAskedFor) {
  const SmallNet saved;
  save_model(*saved, folder_);
  SmallNet net;
  load_checkpoint_in_model(*net, folder_, {.dtype = at::kBFloat16});
  for (const auto& item : get_state_dict(*net)) {
    const bool is_float = get_state_dict(*saved)[item.key()].is_floating_point();
    EXPECT_EQ(item.value().scalar_type(), is_float ? at::kBFloat16 : at::kLong) << item.key();
  }
  EXPECT_TRUE(torch::equal(net->head->weight, saved->head->weight.to(at::kBFloat16)));
  EXPECT_TRUE(net->head->weight.requires_grad());
}

TEST_F(LoadModel, LeavesNamedModulesInFloatWhereTheRestBecomesHalf) {
  save_model(*SmallNet(), folder_);
  SmallNet net;
  load_checkpoint_in_model(*net, folder_,
                           {.dtype = at::kHalf, .keep_in_fp32_modules = {"head", "scale"}});
  EXPECT_EQ(net->head->weight.scalar_type(), at::kFloat);
  EXPECT_EQ(net->scale.scalar_type(), at::kFloat);
  EXPECT_EQ(get_state_dict(*net)["body.0.weight"].scalar_type(), at::kHalf);
}

TEST_F(LoadModel, RestoresTiedParametersFromWhicheverNameTheFileHas) {
  const TiedNet saved;
  for (const char* name : {"embed.weight", "head.weight"}) {
    save_safetensors(folder_ / "w.safetensors", {{name, saved->embed->weight},
                                                 {"mid.weight", saved->mid->weight},
                                                 {"mid.bias", saved->mid->bias}});
    TiedNet net;
    const LoadReport report =
        load_checkpoint_in_model(*net, folder_ / "w.safetensors", {.strict = true});
    EXPECT_THAT(report.missing_keys, IsEmpty());
    EXPECT_TRUE(torch::equal(net->embed->weight, saved->embed->weight));
    EXPECT_EQ(net->embed->weight.data_ptr(), net->head->weight.data_ptr());
  }
}

TEST_F(LoadModel, KeepsTiedParametersTiedWhenTheirTypeChanges) {
  const TiedNet saved;
  save_model(*saved, folder_);
  TiedNet net;
  // The same memory, but not the same tensor object.
  net->head = net->register_module("again", test::SharedLinear(net->embed->weight.detach()));
  load_checkpoint_in_model(*net, folder_, {.dtype = at::kDouble});
  EXPECT_EQ(net->head->weight.scalar_type(), at::kDouble);
  EXPECT_EQ(net->head->weight.data_ptr(), net->embed->weight.data_ptr());
  EXPECT_TRUE(torch::equal(net->head->weight, saved->embed->weight.to(at::kDouble)));
}

TEST_F(LoadModel, FillsBothNamesOfATiedTensorInAModelThatIsNotTied) {
  const TiedNet saved;
  save_model(*saved, folder_);
  TiedNet net;
  net->embed->weight.set_data(torch::zeros({5, 3}));
  struct Untied : torch::nn::Module {
    Untied() {
      embed = register_module("embed", torch::nn::Embedding(5, 3));
      mid = register_module("mid", torch::nn::Linear(3, 3));
      head = register_module("head", test::SharedLinear(torch::zeros({5, 3})));
    }
    torch::nn::Embedding embed{nullptr};
    torch::nn::Linear mid{nullptr};
    test::SharedLinear head{nullptr};
  } untied;
  load_checkpoint_in_model(untied, folder_, {.strict = true});
  EXPECT_TRUE(torch::equal(untied.head->weight, saved->embed->weight));
  EXPECT_TRUE(torch::equal(untied.embed->weight, saved->embed->weight));
  EXPECT_NE(untied.embed->weight.data_ptr(), untied.head->weight.data_ptr());
  const ModelStateDict state = load_state_dict(folder_);
  EXPECT_EQ(state["head.weight"].data_ptr(), state["embed.weight"].data_ptr());
}

TEST_F(LoadModel, RenamesAndLeavesOutTensorsOnTheWay) {
  save_safetensors(folder_ / "w.safetensors",
                   {{"model.scale", torch::full({1}, 5.0)}, {"lm.junk", torch::ones({1})}});
  SmallNet net;
  const LoadReport report = load_checkpoint_in_model(
      *net, folder_ / "w.safetensors", {.key_mapping = [](const std::string& name) {
        return name.starts_with("model.") ? name.substr(6) : std::string();
      }});
  EXPECT_THAT(report.unexpected_keys, IsEmpty());
  EXPECT_EQ(net->scale.item<float>(), 5);
}

TEST_F(LoadModel, LoadsIntoParametersThatAreNotContiguous) {
  struct Columns : torch::nn::Module {
    Columns() { matrix = register_parameter("matrix", torch::zeros({3, 2}).t()); }
    at::Tensor matrix;
  } model;
  const at::Tensor values = torch::randn({2, 3});
  save_safetensors(folder_ / "w.safetensors", {{"matrix", values}});
  const auto version = model.matrix._version();
  load_checkpoint_in_model(model, folder_ / "w.safetensors", {.strict = true});
  EXPECT_TRUE(torch::equal(model.matrix, values));
  EXPECT_EQ(model.matrix.strides(), torch::zeros({3, 2}).t().strides());
  EXPECT_GT(model.matrix._version(), version);
}

TEST_F(LoadModel, TellsAutogradThatAParameterHasChanged) {
  save_model(*SmallNet(), folder_);
  SmallNet net;
  const auto squared = net->scale * net->scale;
  load_checkpoint_in_model(*net, folder_);
  EXPECT_THROW(squared.sum().backward(), c10::Error);
}

TEST_F(LoadModel, TakesTheTensorsOfTheModelItself) {
  SmallNet net;
  const ModelStateDict before = copy_of(get_state_dict(*net));
  load_state_dict_in_model(*net, get_state_dict(*net), {.strict = true});
  EXPECT_TRUE(same_state(get_state_dict(*net), before));
}

TEST_F(LoadModel, TakesTensorsOfMemoryToo) {
  const SmallNet from;
  SmallNet to;
  EXPECT_THAT(load_state_dict_in_model(*to, get_state_dict(*from)).missing_keys, IsEmpty());
  EXPECT_TRUE(same_state(get_state_dict(*to), get_state_dict(*from)));
  EXPECT_NE(to->scale.data_ptr(), from->scale.data_ptr());
}

TEST_F(LoadModel, TakesADeviceMapThatNamesModulesAndTheRest) {
  const SmallNet saved;
  save_model(*saved, folder_);
  SmallNet net;
  const LoadModelOptions options{.device_map = {{"", at::kCPU}, {"head", at::kCPU}}};
  EXPECT_THAT(load_checkpoint_in_model(*net, folder_, options).missing_keys, IsEmpty());
  EXPECT_TRUE(same_state(get_state_dict(*net), get_state_dict(*saved)));
  SmallNet dispatched;
  EXPECT_THAT(load_checkpoint_and_dispatch(*dispatched, folder_, options).missing_keys, IsEmpty());
  EXPECT_TRUE(same_state(get_state_dict(*dispatched), get_state_dict(*saved)));
}

TEST_F(LoadModel, LetsTheIndexDecideWhichOfTwoFilesHasATensor) {
  save_safetensors(folder_ / "1.safetensors", {{"scale", torch::full({1}, 1.0)}});
  save_safetensors(folder_ / "2.safetensors",
                   {{"scale", torch::full({1}, 2.0)}, {"count", torch::arange(3)}});
  write("i.json", R"({"scale":"1.safetensors","count":"2.safetensors"})");
  SmallNet net;
  load_checkpoint_in_model(*net, folder_ / "i.json");
  EXPECT_EQ(net->scale.item<float>(), 1);
  EXPECT_EQ(load_state_dict(folder_ / "i.json")["scale"].item<float>(), 1);
}

// The most memory that was in use since the last forget_peak(), in bytes.
size_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

bool forget_peak() {
  std::ofstream file("/proc/self/clear_refs");
  return static_cast<bool>(file << "5" << std::flush);
}

TEST_F(LoadModel, DoesNotKeepTheFileInMemoryBesideTheModel) {
  constexpr int64_t kElements = 4 << 20;
  constexpr size_t kTensorBytes = kElements * sizeof(float);
  struct Large : torch::nn::Module {
    Large() {
      for (int i = 0; i < 6; ++i) {
        register_buffer("b" + std::to_string(i), torch::full({kElements}, i, torch::kFloat));
      }
    }
  } saved, loaded;
  save_model(saved, folder_);
  if (!forget_peak()) GTEST_SKIP() << "the kernel does not let the peak be forgotten";
  const size_t before = peak_bytes();
  load_checkpoint_in_model(loaded, folder_, {.strict = true});
  EXPECT_LT(peak_bytes(), before + kTensorBytes);
  EXPECT_TRUE(same_state(get_state_dict(loaded), get_state_dict(saved)));

  for (const auto& item : get_state_dict(loaded))
    item.value().set_data(torch::zeros({kElements}, at::kDouble));
  ASSERT_TRUE(forget_peak());
  const size_t before_casts = peak_bytes();
  load_checkpoint_in_model(loaded, folder_, {.strict = true});
  EXPECT_LT(peak_bytes(), before_casts + 2 * kTensorBytes);
}

TEST_F(LoadModel, SavesWithoutASecondCopyOfTheModel) {
  constexpr int64_t kElements = 4 << 20;
  constexpr size_t kTensorBytes = kElements * sizeof(float);
  struct Large : torch::nn::Module {
    Large() {
      for (int i = 0; i < 6; ++i) {
        // Not contiguous: each has to be copied, one after the other.
        register_buffer("b" + std::to_string(i), torch::ones({2, kElements / 2}).t());
      }
    }
  } model;
  if (!forget_peak()) GTEST_SKIP() << "the kernel does not let the peak be forgotten";
  const size_t before = peak_bytes();
  save_model(model, folder_);
  EXPECT_LT(peak_bytes(), before + 2 * kTensorBytes + (16 << 20));
}

TEST_F(LoadModel, AnArchiveThatChangesAfterItWasCheckedIsRefused) {
  const SmallNet saved;
  save_model(*saved, folder_, {.max_shard_size = 60, .safe_serialization = false});
  const std::string first = "pytorch_model-00001-of-00005.bin";
  const TorchDict whole = load_torch_archive(folder_ / first).as_dict();
  for (const at::Tensor& other : {torch::zeros({0}), torch::zeros({1}, at::kDouble)}) {
    TorchDict changed;
    for (const auto& [name, tensor] : whole.entries()) changed.set(name, tensor);
    changed.set("scale", other);
    save_torch_archive(folder_ / first, whole);
    SmallNet net;
    const auto before = copy_of(get_state_dict(*net));
    // Called while the files are checked, the last of them after the first.
    const auto mapping = [&](const std::string& name) {
      if (name == "head.bias") save_torch_archive(folder_ / first, changed);
      return name;
    };
    EXPECT_THAT(test::error_of<CheckpointError>([&] {
                  load_checkpoint_in_model(*net, folder_, {.key_mapping = mapping});
                }).message(),
                HasSubstr("tensor \"scale\" is no longer the one that was checked"));
    EXPECT_TRUE(same_state(get_state_dict(*net), before));
  }
}

}  // namespace
}  // namespace accelerate
