// How a configuration of DeepSpeed is read, and what settings and a run put into it.
#include "config/sharding/deepspeed_document.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "accelerate/errors.h"
#include "config/sharding/deepspeed_run.h"

namespace accelerate::config {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Texts = std::map<std::string, std::string, std::less<>>;

GivenValues given(Texts texts) {
  return [texts = std::move(texts)](std::string_view name) -> std::optional<GivenValue> {
    const auto found = texts.find(name);
    if (found == texts.end()) return std::nullopt;
    return GivenValue{found->second, "--" + found->first};
  };
}

// "message | place | hint"
template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.message() + " | " + error.where() + " | " + error.hint();
  }
  return "taken";
}

std::string reading(const std::string& text) {
  return refusal_of([&] { parse_deepspeed(text, "ds.json"); });
}

class DeepspeedFile : public ::testing::Test {
 protected:
  DeepspeedFile()
      : path_(std::filesystem::temp_directory_path() /
              ("deepspeed_" + std::to_string(getpid()) + ".json")) {
    std::ofstream(path_) << R"({"zero_optimization": {"stage": 3}})";
  }
  ~DeepspeedFile() override { std::filesystem::remove(path_); }

  std::filesystem::path path_;
};

TEST_F(DeepspeedFile, IsReadByItsPath) {
  const DeepspeedDocument document = read_deepspeed(path_.string());
  EXPECT_EQ(*document.find("zero_optimization.stage"), 3);
  EXPECT_EQ(document.place_of("zero_optimization.stage"),
            path_.string() + ": zero_optimization.stage");
}

TEST_F(DeepspeedFile, FoldersAndMissingFilesAreNamed) {
  const std::string folder = path_.parent_path().string();
  EXPECT_EQ(refusal_of([&] { read_deepspeed(folder); }),
            "'" + folder + "' is a folder, not a DeepSpeed configuration |  | name a file in it");
  EXPECT_EQ(refusal_of([] { read_deepspeed("no_such_file.json"); }),
            "'no_such_file.json' is neither a file, nor JSON, nor JSON in base64 | "
            "deepspeed_config_file | name an existing file with DeepSpeed's settings as JSON");
}

TEST(DeepspeedDocument, TextAndBase64AreTakenInPlaceOfAFile) {
  EXPECT_EQ(*read_deepspeed(R"( {"a": {"b": 1}})").find("a.b"), 1);
  // Its base64 has both letters in which the two alphabets differ.
  EXPECT_EQ(*read_deepspeed("eyJhIjogIj8/Pj4+In0=").find("a"), "?\?>>>");
  EXPECT_EQ(*read_deepspeed("eyJhIjogIj8_Pj4-In0=").find("a"), "?\?>>>");
}

TEST(DeepspeedDocument, KeysAreLookedUpByPath) {
  const DeepspeedDocument document = parse_deepspeed(R"({"a": {"b": {"c": 0}}, "n": null})", "f");
  EXPECT_EQ(*document.find("a.b.c"), 0);
  EXPECT_EQ(document.find("a.c"), nullptr);
  EXPECT_EQ(document.find("a.b.c.d"), nullptr);
  EXPECT_EQ(document.find("n"), nullptr);
  EXPECT_EQ(document.find(""), &document.values);
}

TEST(DeepspeedDocument, IsStrictJson) {
  EXPECT_THAT(reading("{\"a\": 1, \"a\": 2}"), HasSubstr("it has the key \"a\" twice | ds.json"));
  EXPECT_THAT(reading("[]"), HasSubstr("it is a list, not an object"));
  EXPECT_THAT(reading("3"), HasSubstr("it is not an object"));
  EXPECT_THAT(reading("{\"a\": 1e999}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(reading("{\"a\": 99999999999999999999}"), HasSubstr("is out of range"));
  EXPECT_THAT(reading("{\"a\": 1,}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(reading("{\"a\":" + std::string(100, '[')), HasSubstr("deeper than 64 levels"));
}

DeepspeedDocument merged(const std::string& text, Texts texts) {
  return deepspeed_document(given(std::move(texts)), parse_deepspeed(text, "ds.json"));
}

TEST(DeepspeedDocument, ASettingFillsWhatTheFileLeavesOpenOrOut) {
  const DeepspeedDocument document =
      merged(R"({"gradient_clipping": "auto", "zero_optimization": {"stage": 3}})",
             {{"gradient_clipping", "0.5"}, {"offload_param_device", "cpu"}, {"zero_stage", "3"}});
  EXPECT_EQ(*document.find("gradient_clipping"), 0.5);
  EXPECT_EQ(document.place_of("gradient_clipping"), "--gradient_clipping");
  EXPECT_EQ(*document.find("zero_optimization.offload_param.device"), "cpu");
  EXPECT_EQ(*document.find("gradient_accumulation_steps"), 1);
  EXPECT_TRUE(document.shards_at_init);
}

TEST(DeepspeedDocument, ASettingThatTheFileContradictsIsRefusedWithBothPlaces) {
  EXPECT_EQ(refusal_of([] {
              merged(R"({"zero_optimization": {"stage": 3}})", {{"zero_stage", "2"}});
            }),
            "zero_optimization.stage is 3, but zero_stage is 2 | ds.json: zero_optimization.stage "
            "and --zero_stage | leave one of them out, or write \"auto\" in the DeepSpeed "
            "configuration");
}

TEST(DeepspeedDocument, WrongSettingsAreNamed) {
  const auto refused = [](const char* name, const char* text) {
    return refusal_of([&] { deepspeed_document(given({{name, text}})); });
  };
  EXPECT_EQ(refused("zero_stage", "4"),
            "zero_stage cannot be 4: it must be 0, 1, 2 or 3 | --zero_stage | ");
  EXPECT_EQ(refused("gradient_clipping", "-1"),
            "gradient_clipping cannot be '-1': it must be a number, 0 or more | "
            "--gradient_clipping | ");
  EXPECT_EQ(refused("gradient_accumulation_steps", "0"),
            "gradient_accumulation_steps cannot be '0': it must be a whole number not below 1 | "
            "--gradient_accumulation_steps | ");
  EXPECT_EQ(refused("offload_param_device", "disk"),
            "an offload device cannot be 'disk': it must be none, cpu or nvme | "
            "--offload_param_device | ");
}

TEST(DeepspeedDocument, SectionsAreNotPutIntoSomethingElse) {
  EXPECT_THAT(refusal_of([] {
                merged(R"({"zero_optimization": 3})", {{"zero_stage", "3"}});
              }),
              HasSubstr("zero_optimization must be an object | ds.json: zero_optimization"));
}

TEST(DeepspeedDocument, WhatSettingsCannotChangeHereIsListed) {
  const DeepspeedDocument document =
      deepspeed_document(given({{"zero3_init_flag", "true"},
                                {"zero_stage", "2"},
                                {"deepspeed_moe_layer_cls_names", "Mixtral"}}));
  EXPECT_FALSE(document.shards_at_init);
  EXPECT_THAT(document.without_effect,
              ElementsAre("zero3_init_flag (--zero3_init_flag; only in stage 3)",
                          "deepspeed_moe_layer_cls_names (--deepspeed_moe_layer_cls_names)"));
}

json filled(const std::string& text, const DeepspeedRun& run) {
  DeepspeedDocument document = parse_deepspeed(text, "ds.json");
  fill_auto(document, run);
  return document.values;
}

TEST(DeepspeedRun, TheSmallestOrLargestLoaderDecidesTheMicroBatch) {
  const std::string open = R"({"train_micro_batch_size_per_gpu": "auto"})";
  const auto micro = [&](const DeepspeedRun& run) {
    return filled(open, run).at("train_micro_batch_size_per_gpu").get<int>();
  };
  EXPECT_EQ(micro({.ranks = 2, .loader_batches = {8, 4, 6}}), 4);
  EXPECT_EQ(micro({.ranks = 2, .loader_batches = {8, 4, 6}, .takes_smallest_batch = false}), 8);
  EXPECT_EQ(micro({.ranks = 2, .loader_batches = {8}, .split_batches = true}), 4);
}

TEST(DeepspeedRun, TheLongestScheduleIsSharedByTheRanks) {
  const std::string open = R"({"scheduler": {"params": {"total_num_steps": "auto"}}})";
  const auto steps = [&](const DeepspeedRun& run) {
    return filled(open, run).at("scheduler").at("params").at("total_num_steps").get<int>();
  };
  EXPECT_EQ(steps({.ranks = 3, .training_steps = 10}), 4);
  EXPECT_EQ(steps({.ranks = 3, .split_batches = true, .training_steps = 10}), 10);
}

TEST(DeepspeedRun, TheLargestHiddenSizeDecidesTheBuckets) {
  const json zero = filled(R"({"zero_optimization": {"reduce_bucket_size": "auto",
      "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}})",
                           {.hidden_sizes = {10, 30, 20}})
                        .at("zero_optimization");
  EXPECT_EQ(zero, json({{"reduce_bucket_size", 900},
                        {"stage3_prefetch_bucket_size", 810},
                        {"stage3_param_persistence_threshold", 300}}));
}

TEST(DeepspeedRun, AnAutoThatNothingFillsIsRefusedByItsPlace) {
  const auto refused = [](const std::string& text) {
    return refusal_of([&] { filled(text, {}); });
  };
  EXPECT_EQ(refused(R"({"train_micro_batch_size_per_gpu": "auto"})"),
            "nothing is known from which the \"auto\" of train_micro_batch_size_per_gpu could be "
            "filled in | ds.json: train_micro_batch_size_per_gpu | write its value in place of "
            "\"auto\"");
  EXPECT_THAT(refused(R"({"optimizer": {"params": {"betas": "auto"}}})"),
              HasSubstr("ds.json: optimizer.params.betas"));
}

TEST(DeepspeedRun, LoadersThatTheConfigurationContradictsAreRefused) {
  EXPECT_EQ(refusal_of([] {
              filled(R"({"train_micro_batch_size_per_gpu": 4})", {.loader_batches = {8}});
            }),
            "the DeepSpeed configuration and the run contradict each other: - ds "
            "train_micro_batch_size_per_gpu=4 vs arg train_micro_batch_size_per_gpu=8 | ds.json: "
            "train_micro_batch_size_per_gpu and the prepared loaders | write \"auto\" there, which "
            "takes the value of the run");
}

TEST(DeepspeedRun, OneOfSeveralLoadersHasToFit) {
  const json values = filled(R"({"train_micro_batch_size_per_gpu": 8, "train_batch_size": "auto"})",
                             {.ranks = 2, .loader_batches = {8, 4}, .accumulation_steps = 3});
  EXPECT_EQ(values.at("train_batch_size"), 48);
}

TEST(DeepspeedRun, OptimizersAndSchedulesComeFromOnePlace) {
  const auto check = [](const std::string& text, Brought optimizer, Brought scheduler) {
    try {
      check_brought(parse_deepspeed(text, "ds.json"), optimizer, scheduler);
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("taken");
  };
  const std::string both = R"({"optimizer": {}, "scheduler": {}})";
  EXPECT_EQ(check(both, Brought::kPlaceholder, Brought::kPlaceholder), "taken");
  EXPECT_EQ(check(both, Brought::kNothing, Brought::kNothing), "taken");
  EXPECT_EQ(check("{}", Brought::kOwn, Brought::kOwn), "taken");
  EXPECT_EQ(check(both, Brought::kOwn, Brought::kPlaceholder),
            "the DeepSpeed configuration has a section optimizer, and the program brings its own");
  EXPECT_EQ(check(both, Brought::kPlaceholder, Brought::kOwn),
            "the DeepSpeed configuration has a section scheduler, and the program brings its own");
  EXPECT_EQ(check("{}", Brought::kOwn, Brought::kPlaceholder),
            "the program passes a placeholder for the scheduler, and the DeepSpeed configuration "
            "has none");
  EXPECT_EQ(check(R"({"optimizer": {}})", Brought::kPlaceholder, Brought::kOwn),
            "a schedule of the program's own needs its own optimizer too");
}

TEST(DeepspeedRun, AccumulationComesFromTheProgramWhereTheConfigurationLeavesIt) {
  const std::string open = R"({"gradient_accumulation_steps": "auto"})";
  EXPECT_EQ(filled(open, {.accumulation_steps = 3}).at("gradient_accumulation_steps"), 3);
  EXPECT_EQ(filled(open, {}).at("gradient_accumulation_steps"), 1);
  EXPECT_THAT(refusal_of([] {
                filled(R"({"gradient_accumulation_steps": 2})", {.accumulation_steps = 3});
              }),
              HasSubstr("gradient_accumulation_steps is 2 in the DeepSpeed configuration, but 3 in "
                        "the program | ds.json: gradient_accumulation_steps and the program"));
}

std::string precise(const std::string& text, const char* precision) {
  DeepspeedDocument document = parse_deepspeed(text, "ds.json");
  return refusal_of([&] { set_precision(document, precision, "--mixed_precision"); });
}

TEST(DeepspeedRun, PrecisionThatIsEnabledOrSwitchedOffElsewhereIsRefused) {
  EXPECT_EQ(precise(R"({"bf16": {"enabled": true}})", "fp16"),
            "mixed_precision is fp16, but bf16.enabled is true | --mixed_precision and ds.json: "
            "bf16.enabled | write \"enabled\": \"auto\" in the DeepSpeed configuration");
  EXPECT_THAT(precise(R"({"fp16": {"enabled": false}})", "fp16"),
              HasSubstr("mixed_precision is fp16, but fp16.enabled is false"));
  EXPECT_EQ(precise(R"({"bf16": {"enabled": true}})", "no"), "taken");
  EXPECT_EQ(precise(R"({"fp16": {"enabled": false}})", "bf16"), "taken");
}

}  // namespace
}  // namespace accelerate::config
