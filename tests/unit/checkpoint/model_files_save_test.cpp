// Saving a model: which files, and what becomes of those of an earlier save.
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
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

using SaveModel = test::ScratchFolder;

TEST(ModelState, HasTheNamesAndTheOrderOfPython) {
  EXPECT_THAT(get_state_dict(*SmallNet()).keys(),
              ElementsAre("scale", "count", "body.0.weight", "body.0.bias", "body.1.weight",
                          "body.1.bias", "body.1.running_mean", "body.1.running_var",
                          "body.1.num_batches_tracked", "head.weight", "head.bias"));
  TiedNet tied;
  const ModelStateDict state = get_state_dict(*tied);
  EXPECT_THAT(state.keys(), ElementsAre("embed.weight", "mid.weight", "mid.bias", "head.weight"));
  EXPECT_EQ(state["embed.weight"].data_ptr(), tied->head->weight.data_ptr());
}

TEST_F(SaveModel, WritesOneFileMarkedAsTorch) {
  const SmallNet net;
  save_model(*net, folder_ / "deep" / "out");
  const SafetensorsFile file(folder_ / "deep" / "out" / "model.safetensors");
  EXPECT_EQ(file.metadata(), (SafetensorsMetadata{{"format", "pt"}}));
  EXPECT_EQ(file.names().size(), 11U);
  EXPECT_TRUE(same_state(get_state_dict(*net), [&] {
    NamedTensors read;
    for (const auto& item : get_state_dict(*net)) read.insert(item.key(), file.tensor(item.key()));
    return read;
  }()));
}

TEST_F(SaveModel, WritesShardsAndTheirIndex) {
  const SmallNet net;
  save_model(*net, folder_, {.max_shard_size = 60});
  EXPECT_THAT(entries(),
              ElementsAre("model-00001-of-00005.safetensors", "model-00002-of-00005.safetensors",
                          "model-00003-of-00005.safetensors", "model-00004-of-00005.safetensors",
                          "model-00005-of-00005.safetensors", "model.safetensors.index.json"));
  EXPECT_THAT(read("model.safetensors.index.json"),
              HasSubstr("\"scale\": \"model-00001-of-00005.safetensors\""));
  EXPECT_THAT(read("model.safetensors.index.json"), HasSubstr("\"total_size\": 204"));
  EXPECT_EQ(SafetensorsFile(folder_ / "model-00005-of-00005.safetensors").metadata(),
            (SafetensorsMetadata{{"format", "pt"}}));
}

TEST_F(SaveModel, KeepsTheFirstOfTiedNamesAndSaysWhichOthersThereWere) {
  save_model(*TiedNet(), folder_);
  const SafetensorsFile file(folder_ / "model.safetensors");
  EXPECT_THAT(file.names(), ElementsAre("embed.weight", "mid.bias", "mid.weight"));
  EXPECT_THAT(file.metadata(),
              ElementsAre(Pair("format", "pt"), Pair("head.weight", "embed.weight")));

  save_model(*TiedNet(), folder_, {.max_shard_size = "0.05KB"});
  EXPECT_EQ(read("model.safetensors.index.json").find("head.weight"), std::string::npos);
  EXPECT_THAT(SafetensorsFile(folder_ / "model-00001-of-00002.safetensors").aliases(),
              ElementsAre(Pair("head.weight", "embed.weight")));
}

TEST_F(SaveModel, WritesArchivesOfTorchOnRequest) {
  const TiedNet net;
  save_model(*net, folder_, {.safe_serialization = false});
  EXPECT_THAT(entries(), ElementsAre("pytorch_model.bin"));
  const TorchValue value = load_torch_archive(folder_ / "pytorch_model.bin");
  EXPECT_EQ(value.as_dict().kind(), TorchDict::Kind::kOrderedDict);
  EXPECT_EQ(value.as_dict().size(), 4U);
  EXPECT_EQ(value.as_dict().at("head.weight").as_tensor().data_ptr(),
            value.as_dict().at("embed.weight").as_tensor().data_ptr());

  save_model(*net, folder_, {.max_shard_size = 60, .safe_serialization = false});
  EXPECT_THAT(entries(),
              ElementsAre("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin",
                          "pytorch_model.bin.index.json"));
  EXPECT_THAT(read("pytorch_model.bin.index.json"),
              HasSubstr("\"head.weight\": \"pytorch_model-00001-of-00002.bin\""));
}

TEST_F(SaveModel, LeavesNothingOfAnEarlierSaveWhateverItsFormat) {
  write("config.json", "{}");
  write("model_1.safetensors", "not ours to remove");
  const std::vector<SaveModelOptions> ways{{},
                                           {.max_shard_size = 60},
                                           {.max_shard_size = 100},
                                           {.safe_serialization = false},
                                           {.max_shard_size = 60, .safe_serialization = false}};
  for (size_t before = 0; before < ways.size(); ++before) {
    for (size_t after = 0; after < ways.size(); ++after) {
      save_model(*SmallNet(), folder_, ways[before]);
      const SmallNet net;
      save_model(*net, folder_, ways[after]);
      const auto left = entries();
      SmallNet loaded;
      const LoadReport report = load_checkpoint_in_model(*loaded, folder_, {.strict = true});
      EXPECT_TRUE(same_state(get_state_dict(*loaded), get_state_dict(*net)))
          << before << " then " << after;

      std::filesystem::remove_all(folder_ / "alone");
      save_model(*net, folder_ / "alone", ways[after]);
      std::set<std::string> expected{"alone", "config.json", "model_1.safetensors"};
      for (const auto& entry : std::filesystem::directory_iterator(folder_ / "alone")) {
        expected.insert(entry.path().filename().string());
      }
      std::filesystem::remove_all(folder_ / "alone");
      expected.erase("alone");
      EXPECT_EQ(left, expected) << before << " then " << after;
    }
  }
}

TEST_F(SaveModel, RemovesWhatAKilledSaveHasLeft) {
  write("save_model-0123456789abcdef.partial", "half a file");
  write("notes.partial", "somebody else's");
  save_model(*TiedNet(), folder_);
  EXPECT_THAT(entries(), ElementsAre("model.safetensors", "notes.partial"));
}

TEST_F(SaveModel, KeepsTheEarlierModelIfATensorCannotBeSaved) {
  const SmallNet net;
  const ModelStateDict saved = copy_of(get_state_dict(*net));
  save_model(*net, folder_, {.max_shard_size = 60});
  const auto before = entries();
  SmallNet odd;
  odd->register_buffer("odd", torch::ones({2}, torch::kComplexDouble));
  EXPECT_THROW(save_model(*odd, folder_, {.max_shard_size = 60}), UsageError);
  SmallNet meta;
  meta->register_buffer("meta", torch::ones({2}, torch::kMeta));
  EXPECT_THAT(error_of<UsageError>([&] { save_model(*meta, folder_); }).message(),
              HasSubstr("meta is a meta tensor"));
  EXPECT_EQ(entries(), before);
  SmallNet loaded;
  load_checkpoint_in_model(*loaded, folder_, {.strict = true});
  EXPECT_TRUE(same_state(get_state_dict(*loaded), saved));
}

TEST_F(SaveModel, RefusesAFileInPlaceOfAFolderAndSizesThatAreNone) {
  const auto file = write("file", "x");
  EXPECT_EQ(error_of<UsageError>([&] { save_model(*SmallNet(), file); }).message(),
            "a model is saved into a folder, but this is a file");
  EXPECT_EQ(error_of<UsageError>([&] {
              save_model(*SmallNet(), folder_, {.max_shard_size = "ten"});
            }).message(),
            "\"ten\" is not a size");
  EXPECT_EQ(error_of<UsageError>([&] {
              save_model(*SmallNet(), folder_, {.max_shard_size = -1});
            }).message(),
            "a shard cannot have -1 bytes");
}

TEST_F(SaveModel, WritesAModelWithoutTensorsAsAFileWithout) {
  save_model(*torch::nn::Sequential(torch::nn::ReLU()), folder_);
  EXPECT_TRUE(SafetensorsFile(folder_ / "model.safetensors").names().empty());
  EXPECT_TRUE(load_state_dict(folder_).is_empty());
}

TEST_F(SaveModel, SavesValuesAndNamedTensorsInEitherFormat) {
  accelerate::save(TorchDict{{"epoch", 3}, {"x", torch::ones({2})}}, folder_ / "state.pt");
  EXPECT_EQ(load_torch_archive(folder_ / "state.pt").as_dict().at("epoch").as_integer(), 3);
  const NamedTensors tensors{{"a", torch::ones({2})}};
  accelerate::save(tensors, folder_ / "a.bin");
  EXPECT_TRUE(same_state(load_state_dict(folder_ / "a.bin"), tensors));
  accelerate::save(tensors, folder_ / "a.safetensors", {.safe_serialization = true});
  EXPECT_EQ(SafetensorsFile(folder_ / "a.safetensors").metadata(),
            (SafetensorsMetadata{{"format", "pt"}}));
  EXPECT_THAT(entries(), ElementsAre("a.bin", "a.safetensors", "state.pt"));
}

TEST_F(SaveModel, ThatFailsLeavesTheEarlierModelAsItWas) {
  const SmallNet old;
  save_model(*old, folder_, {.max_shard_size = 60, .safe_serialization = false});
  const auto before = entries();
  // The index of the new model, the last of its files, cannot get its name.
  const auto index = folder_ / "model.safetensors.index.json";
  std::filesystem::create_directories(index / "in the way");
  EXPECT_THROW(save_model(*SmallNet(), folder_, {.max_shard_size = 60}), CheckpointError);
  std::filesystem::remove_all(index);
  EXPECT_EQ(entries(), before);
  EXPECT_TRUE(same_state(load_state_dict(folder_), get_state_dict(*old)));
}

}  // namespace
}  // namespace accelerate
