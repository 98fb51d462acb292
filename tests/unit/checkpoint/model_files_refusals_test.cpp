// What is wrong with a checkpoint is said before anything in the model has changed.
#include <accelerate/model_files.h>
#include <accelerate/torch_archive.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "unit/checkpoint/model_files_models.h"
#include "unit/files/safetensors_files.h"

namespace accelerate {
namespace {

using test::copy_of;
using test::error_of;
using test::same_state;
using test::SmallNet;
using test::TiedNet;
using testing::HasSubstr;

class RefusedCheckpoint : public test::ScratchFolder {
 protected:
  // The error of loading into a model, which must be what it was.
  template <class E = CheckpointError>
  E refusal(const std::filesystem::path& path, const LoadModelOptions& options = {}) {
    const ModelStateDict before = copy_of(get_state_dict(*net_));
    const E error = error_of<E>([&] { load_checkpoint_in_model(*net_, path, options); });
    EXPECT_TRUE(same_state(get_state_dict(*net_), before));
    return error;
  }

  SmallNet net_;
};

TEST_F(RefusedCheckpoint, NamesAllTensorsWhoseShapeDiffers) {
  save_model(*SmallNet(7), folder_, {.max_shard_size = 60});
  const auto error = refusal(folder_);
  EXPECT_EQ(
      error.message(),
      "the checkpoint does not fit the model: body.0.weight [7, 3] in the file, [4, 3] in the "
      "model, body.0.bias [7] in the file, [4] in the model, body.1.weight [7] in the file, "
      "[4] in the model, body.1.bias [7] in the file, [4] in the model, body.1.running_mean "
      "[7] in the file, [4] in the model, body.1.running_var [7] in the file, [4] in the "
      "model, head.weight [2, 7] in the file, [2, 4] in the model");
  EXPECT_EQ(error.where(), folder_.string());
}

TEST_F(RefusedCheckpoint, NamesAllMissingAndUnexpectedTensorsUnderStrict) {
  NamedTensors state = copy_of(get_state_dict(*SmallNet()));
  state.erase("count");
  state.erase("head.bias");
  state.insert("more", torch::ones({1}));
  save_safetensors(folder_ / "w.safetensors", state);
  EXPECT_EQ(refusal(folder_ / "w.safetensors", {.strict = true}).message(),
            "the checkpoint does not hold the tensors of the model; missing: count, head.bias; "
            "unexpected: more");
}

TEST_F(RefusedCheckpoint, NamesADamagedShardBeforeTheFirstOneIsLoaded) {
  save_model(*SmallNet(), folder_, {.max_shard_size = 60});
  std::filesystem::resize_file(folder_ / "model-00005-of-00005.safetensors", 100);
  EXPECT_EQ(refusal(folder_).where(), (folder_ / "model-00005-of-00005.safetensors").string());
  std::filesystem::remove(folder_ / "model-00005-of-00005.safetensors");
  EXPECT_THAT(refusal(folder_).message(), HasSubstr("which the index names, cannot be opened"));
}

TEST_F(RefusedCheckpoint, SaysThatAFileLacksWhatTheIndexPlacesThere) {
  save_safetensors(folder_ / "1.safetensors", {{"scale", torch::ones({1})}});
  write("i.json", R"({"scale":"1.safetensors","count":"1.safetensors"})");
  EXPECT_EQ(refusal(folder_ / "i.json").message(),
            "the index places tensor \"count\" in this file, but it is not there");
}

TEST_F(RefusedCheckpoint, RefusesTypesAndValuesThatTheModelCannotHold) {
  write("f4.safetensors",
        test::safetensors_file(R"({"x":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1));
  EXPECT_THAT(refusal(folder_ / "f4.safetensors").message(),
              HasSubstr("which torch does not have"));
  save_safetensors(folder_ / "c.safetensors", {{"scale", torch::ones({1}, at::kComplexFloat)}});
  EXPECT_EQ(refusal(folder_ / "c.safetensors").message(),
            "the checkpoint does not fit the model: scale complex in the file, real in the model");
  net_->register_buffer("mask", torch::ones({3}, at::kBool));
  write("b.safetensors",
        test::safetensors_file(R"({"mask":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3));
  EXPECT_THAT(refusal(folder_ / "b.safetensors").message(), HasSubstr("holds the byte 2"));
}

TEST_F(RefusedCheckpoint, RefusesModelsOfOtherFrameworks) {
  save_safetensors(folder_ / "w.safetensors", {{"scale", torch::ones({1})}}, {{"format", "tf"}});
  EXPECT_THAT(refusal(folder_ / "w.safetensors").message(), HasSubstr("of the format \"tf\""));
}

TEST_F(RefusedCheckpoint, RefusesArchivesThatHoldNoStateDict) {
  accelerate::save(TorchValue(3), folder_ / "n.bin");
  EXPECT_EQ(refusal(folder_ / "n.bin").message(), "the file holds an integer, not a state dict");
  accelerate::save(TorchDict{{"epoch", 3}}, folder_ / "e.bin");
  EXPECT_EQ(refusal(folder_ / "e.bin").message(),
            "the file holds no state dict: the value of \"epoch\" is an integer");
  accelerate::save(TorchDict{{1, torch::ones({1})}}, folder_ / "k.bin");
  EXPECT_EQ(refusal(folder_ / "k.bin").message(),
            "the file holds no state dict: a key is an integer");
}

TEST_F(RefusedCheckpoint, SaysWhatAFolderLacksOrHasTooMuchOf) {
  EXPECT_EQ(refusal(folder_ / "none").message(), "there is no such checkpoint");
  EXPECT_EQ(refusal(folder_).message(),
            "the folder holds no model: no pytorch_model.bin, no model.safetensors and no "
            "*.index.json");
  write("a.index.json", "{}");
  write("b.index.json", "{}");
  EXPECT_EQ(refusal(folder_).message(),
            "the folder holds more than one index: a.index.json, b.index.json");
}

TEST_F(RefusedCheckpoint, RefusesADeviceMapThatLeavesTensorsOutOrSplitsTiedOnes) {
  save_model(*net_, folder_);
  EXPECT_EQ(refusal<UsageError>(folder_, {.device_map = {{"body", at::kCPU}, {"scale", at::kCPU}}})
                .message(),
            "the device map gives no device to count, head.bias, head.weight");
  EXPECT_EQ(error_of<UsageError>([&] {
              load_checkpoint_and_dispatch(*net_, folder_,
                                           {.device_map = {{"", at::kCPU}, {"head", at::kCUDA}}});
            }).message(),
            "the device map names more than one device: cpu, cuda");
  TiedNet tied;
  save_model(*tied, folder_);
  EXPECT_EQ(
      error_of<UsageError>([&] {
        load_checkpoint_in_model(*tied, folder_,
                                 {.device_map = {{"", at::kCPU}, {"head", at::kCUDA}}});
      }).message(),
      "embed.weight and head.weight are one tensor, but the device map puts them on cpu and cuda");
}

TEST_F(RefusedCheckpoint, RefusesAMappingThatGivesTwoTensorsOneName) {
  save_safetensors(folder_ / "w.safetensors", {{"a", torch::ones({1})}, {"b", torch::ones({1})}});
  EXPECT_EQ(refusal<UsageError>(folder_ / "w.safetensors",
                                {.key_mapping = [](const std::string&) { return "scale"; }})
                .message(),
            "key_mapping makes \"a\" and \"b\" the same tensor \"scale\"");
}

TEST_F(RefusedCheckpoint, RefusesAModelThatHasNoMemory) {
  save_safetensors(folder_ / "w.safetensors", {{"meta", torch::ones({1})}});
  net_->register_buffer("meta", torch::ones({1}, at::kMeta));
  EXPECT_THAT(error_of<UsageError>([&] {
                load_checkpoint_in_model(*net_, folder_ / "w.safetensors");
              }).message(),
              HasSubstr("is a meta tensor"));
}

}  // namespace
}  // namespace accelerate
