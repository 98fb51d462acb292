// ModelConfig: settings of a model, read strictly and written as Python does.
#include <accelerate/errors.h>
#include <accelerate/transformers/config.h>
#include <gmock/gmock.h>

#include <string>

#include "golden/reference_data.h"
#include "transformers/checkpoints.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using transformers::ModelConfig;

std::string data_error(const std::string& json) {
  return error_from<DataError>([&] { ModelConfig::from_json(json, "some.json"); });
}

// json.dumps(value, indent=2, sort_keys=True) + "\n" of Python 3.
constexpr const char* kAsPythonWritesIt = R"({
  "a": {
    "b": {},
    "c": [],
    "d": null,
    "e": true
  },
  "i": [
    -9223372036854775808,
    9223372036854775807
  ],
  "text": "a\"b\\\u00e9\u20ac\ud83d\ude00\n\u007f",
  "z": [
    1e-12,
    0.1,
    1e-05,
    1e+16,
    123456789.0,
    -0.0,
    1.0,
    5e-324,
    1.7976931348623157e+308,
    1000000000000000.0,
    0.0001,
    123456.789
  ]
}
)";

TEST(ModelConfig, WritesWhatPythonWrites) {
  EXPECT_EQ(ModelConfig::from_json(kAsPythonWritesIt).to_json(), kAsPythonWritesIt);
  EXPECT_EQ(ModelConfig::from_json(
                R"({"z":[1.0E-12,0.10,1e-5,1E16,123456789.0,-0.0,1.0,4.9e-324,
                        1.7976931348623157e308,1e15,0.0001,123456.789],
                    "text":"a\"b\\é€😀\n\u007f","i":[-9223372036854775808,9223372036854775807],
                    "a":{"e":true,"d":null,"c":[],"b":{}}})")
                .to_json(),
            kAsPythonWritesIt);
  EXPECT_EQ(ModelConfig().to_json(), "{}\n");
}

TEST(ModelConfig, KeepsTheBytesOfFilesThatTransformersWrote) {
  for (const fs::path& folder : fixture_folders("hf_models")) {
    int files = 0;
    for (const char* name : {"config.json", "config_v4.json", "generation_config.json"}) {
      const fs::path path = folder / name;
      if (!fs::exists(path)) continue;
      EXPECT_EQ(ModelConfig::from_file(path).to_json(), read_file(path)) << path;
      ++files;
    }
    EXPECT_GT(files, 0) << folder;
  }
}

TEST(ModelConfig, GivesValuesByNameAndByPath) {
  const auto config = ModelConfig::from_json(
      R"({"size": 7, "rope": {"theta": 1e4, "kind": "x"}, "none": null, "yes": true, "p": 1,
          "eos": [1, 2], "one": 5, "names": ["a", "b"]})");
  EXPECT_EQ(config.size("size"), 7);
  EXPECT_EQ(config.number("rope.theta"), 10000.0);
  EXPECT_EQ(config.text("rope.kind"), "x");
  EXPECT_EQ(config.number("size"), 7.0);
  EXPECT_TRUE(config.flag("yes"));
  EXPECT_EQ(config.probability("p", 0.5), 1.0);
  EXPECT_THAT(config.integers("eos"), ElementsAre(1, 2));
  EXPECT_THAT(config.integers("one"), ElementsAre(5));
  EXPECT_THAT(config.integers("missing"), ElementsAre());
  EXPECT_THAT(config.texts("names"), ElementsAre("a", "b"));
}

TEST(ModelConfig, TakesNullForAbsent) {
  const auto config = ModelConfig::from_json(R"({"none": null, "inside": {"none": null}})");
  EXPECT_FALSE(config.has("none"));
  EXPECT_FALSE(config.has("inside.none"));
  EXPECT_FALSE(config.has("none.deeper"));
  EXPECT_TRUE(config.is_null("none"));
  EXPECT_TRUE(config.is_null("inside.none"));
  EXPECT_FALSE(config.is_null("inside.nothing"));
  EXPECT_FALSE(config.is_null("none.deeper"));
  EXPECT_EQ(config.integer("none", 3), 3);
  EXPECT_EQ(config.text("inside.none", "x"), "x");
  EXPECT_EQ(error_from<DataError>([&] { (void)config.size("none"); }),
            "DataError: \"none\" is missing; it should be a whole number from 1 to 2147483647\n"
            "  at   config.json");
}

TEST(ModelConfig, SetsValuesInsideOfObjectsThatItMakes) {
  auto config = ModelConfig::from_json(R"({"rope": null, "hidden": 4})");
  config.set("rope.theta", 5.5);
  config.set("hidden", int64_t{8});
  config.set("gone", nullptr);
  config.set("ends", std::vector<int64_t>{1, 2});
  config.set("name", std::string("é"));
  const ModelConfig copy = config;
  config.set("hidden", int64_t{9});
  EXPECT_EQ(copy.to_json(), ModelConfig::from_json(R"({"rope": {"theta": 5.5}, "hidden": 8,
                                                       "gone": null, "name": "é", "ends": [1, 2]})")
                                .to_json());
  config.remove("rope.theta");
  config.remove("rope.nothing");
  config.remove("name");
  EXPECT_FALSE(config.has("rope.theta"));
  EXPECT_FALSE(config.has("name"));
  EXPECT_EQ(error_from<DataError>([&] { config.set("hidden.x", true); }),
            "DataError: \"hidden.x\" cannot be set inside of 9; that should be an object\n"
            "  at   config.json");
  EXPECT_THROW(config.set("x", std::string("\xff")), UsageError);
  EXPECT_THROW(config.set("x", std::numeric_limits<double>::infinity()), UsageError);
  EXPECT_THROW(config.set_texts("x", {"\xc3"}), UsageError);
}

TEST(ModelConfig, KnowsTheNamesThatAllModelsHaveInCommon) {
  ModelConfig config = ModelConfig::from_json(R"({"model_type": "gpt2", "n_embd": 16,
      "num_hidden_layers": 3, "n_layer": 2})");
  EXPECT_EQ(config.size("hidden_size"), 16);
  EXPECT_TRUE(config.has("hidden_size"));
  EXPECT_EQ(config.size("n_layer"), 3);  // Python's rule
  config.set("num_attention_heads", int64_t{4});
  config.set("hidden_size", int64_t{32});
  config.set("max_position_embeddings", nullptr);
  EXPECT_TRUE(config.is_null("n_positions"));
  EXPECT_TRUE(config.is_null("max_position_embeddings"));
  config.remove("max_position_embeddings");
  EXPECT_EQ(config.to_json(), R"({
  "model_type": "gpt2",
  "n_embd": 32,
  "n_head": 4,
  "n_layer": 3
}
)");
  const ModelConfig t5 = ModelConfig::from_json(
      R"({"model_type": "t5", "head_dim": 4, "d_model": 8, "num_layers": 2, "num_heads": 3})");
  EXPECT_EQ(t5.size("d_kv"), 4);
  EXPECT_EQ(t5.size("hidden_size"), 8);
  EXPECT_EQ(t5.size("num_hidden_layers"), 2);
  EXPECT_EQ(t5.size("num_attention_heads"), 3);
  const ModelConfig distilbert = ModelConfig::from_json(
      R"({"model_type": "distilbert", "dim": 4, "n_layers": 2, "n_heads": 1})");
  EXPECT_EQ(distilbert.size("hidden_size"), 4);
  EXPECT_EQ(distilbert.size("num_hidden_layers"), 2);
  EXPECT_EQ(distilbert.size("num_attention_heads"), 1);
  const ModelConfig bert =
      ModelConfig::from_json(R"({"model_type": "bert", "hidden_size": 4, "n_embd": 5})");
  EXPECT_EQ(bert.size("hidden_size"), 4);
}

TEST(ModelConfig, WhatSomebodySetsWronglyIsAnErrorOfHis) {
  ModelConfig config = ModelConfig::from_json(R"({"model_type": "gpt2", "n_layer": 2})", "a.json");
  EXPECT_EQ(config.source_of("n_layer"), "a.json");
  config.set("num_hidden_layers", int64_t{0}, "the caller");
  EXPECT_EQ(config.source_of("n_layer"), "the caller");
  EXPECT_EQ(
      error_from<UsageError>([&] { (void)config.size("n_layer"); }),
      "UsageError: \"n_layer\" is 0; it should be a whole number from 1 to 2147483647\n  at   "
      "the caller");
  config.set("n_layer", int64_t{-1});
  EXPECT_THAT(error_from<DataError>([&] { (void)config.size("n_layer"); }), HasSubstr("a.json"));
}

TEST(ModelConfig, NamesTheKeyItsValueAndWhatItShouldBe) {
  const auto config = ModelConfig::from_json(
      R"({"a": -5, "b": 2147483648, "c": 1.5, "d": "12", "e": [1, "x"], "f": {}, "g": 1.5, "h": 0,
          "i": "a text that is as long as what fits into a message and then some more of it, and then more"})",
      "folder/config.json");
  const auto said = [&](auto call) { return error_from<DataError>(call); };
  EXPECT_EQ(said([&] { (void)config.size("a"); }),
            "DataError: \"a\" is -5; it should be a whole number from 1 to 2147483647\n"
            "  at   folder/config.json");
  EXPECT_THAT(said([&] { (void)config.size("b", 1); }), HasSubstr("\"b\" is 2147483648; it"));
  EXPECT_THAT(said([&] { (void)config.size("c"); }), HasSubstr("\"c\" is 1.5; it"));
  EXPECT_THAT(said([&] { (void)config.size("h"); }), HasSubstr("\"h\" is 0; it"));
  EXPECT_THAT(said([&] { (void)config.integer("d"); }),
              HasSubstr("\"d\" is \"12\"; it should be a whole number"));
  EXPECT_THAT(said([&] { (void)config.integers("e"); }),
              HasSubstr("\"e\" is a list; it should be a whole number or a list of them"));
  EXPECT_THAT(said([&] { (void)config.texts("f"); }),
              HasSubstr("\"f\" is an object; it should be a list of texts"));
  EXPECT_THAT(said([&] { (void)config.probability("g", 0); }),
              HasSubstr("\"g\" is 1.5; it should be a number from 0 to 1"));
  EXPECT_THAT(said([&] { (void)config.non_negative("a", 1); }),
              HasSubstr("\"a\" is -5; it should be a number that is 0 or more"));
  EXPECT_EQ(config.non_negative("g", 0), 1.5);
  EXPECT_THAT(said([&] { (void)config.flag("h"); }),
              HasSubstr("\"h\" is 0; it should be true or false"));
  EXPECT_THAT(said([&] { (void)config.number("i"); }), HasSubstr("...\"; it should be a number"));
}

TEST(ModelConfig, RefusesTextsThatAreNoConfiguration) {
  EXPECT_THAT(data_error(""), HasSubstr("the file is not valid JSON"));
  EXPECT_THAT(data_error("{\"a\": 1"), HasSubstr("at   some.json"));
  EXPECT_THAT(data_error("{\"a\": 1} x"), HasSubstr("the file is not valid JSON"));
  EXPECT_THAT(data_error("[1]"), HasSubstr("it is a list, not an object"));
  EXPECT_THAT(data_error("3"), HasSubstr("it is not an object"));
  EXPECT_THAT(data_error("{\"a\": \"\xff\"}"), HasSubstr("the file is not valid JSON"));
  EXPECT_THAT(data_error("{\"a\": NaN}"), HasSubstr("the file is not valid JSON"));
}

TEST(ModelConfig, RefusesAKeyThatIsThereTwice) {
  EXPECT_EQ(data_error(R"({"hidden_size": 4, "x": {"y": 1}, "hidden_size": 5})"),
            "DataError: this is not a valid configuration: it has the key \"hidden_size\" twice\n"
            "  at   some.json");
  EXPECT_THAT(data_error(R"({"x": {"y": 1, "y": 1}})"), HasSubstr("\"y\" twice"));
}

TEST(ModelConfig, RefusesNumbersThatDoNotFit) {
  EXPECT_THAT(data_error(R"({"a": 9223372036854775808})"),
              HasSubstr("the number 9223372036854775808 is out of range"));
  EXPECT_THAT(data_error(R"({"a": 100000000000000000000000})"), HasSubstr("is out of range"));
  EXPECT_THAT(data_error(R"({"a": 1e999})"), HasSubstr("number overflow parsing"));
}

TEST(ModelConfig, RefusesDeepNestingWithoutRecursion) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_NO_THROW(ModelConfig::from_json("{\"a\": " + nested(63) + "}").to_json());
  EXPECT_THAT(data_error("{\"a\": " + nested(64) + "}"), HasSubstr("deeper than 64 levels"));
  EXPECT_THAT(data_error("{\"a\": " + nested(1000000) + "}"), HasSubstr("deeper than 64 levels"));
}

TEST(ModelConfig, RefusesFilesThatAreMissingTooLargeOrNoFiles) {
  const CheckpointFolder folder;
  EXPECT_THAT(error_from<DataError>([&] { ModelConfig::from_file(folder.path()); }),
              HasSubstr("config.json"));
  write_file(folder.path() / "config.json", "{}");
  EXPECT_EQ(ModelConfig::from_file(folder.path()).to_json(), "{}\n");
  std::string large = "{\"a\": \"";
  large.append(size_t{17} << 20, 'x');
  write_file(folder.path() / "large.json", large + "\"}");
  EXPECT_THAT(error_from<DataError>([&] { ModelConfig::from_file(folder.path() / "large.json"); }),
              HasSubstr("it should have at most 16777216"));
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(ModelConfig::from_file(folder.path() / "pipe"), DataError);
}

TEST(ModelConfig, KnowsLabelsByNameOrByNumber) {
  EXPECT_THAT(ModelConfig().labels(), ElementsAre("LABEL_0", "LABEL_1"));
  EXPECT_EQ(ModelConfig::from_json(R"({"num_labels": 5})").num_labels(), 5);
  // Keys are texts in JSON: 10 comes before 2.
  auto config = ModelConfig::from_json(
      R"({"id2label": {"0": "a", "1": "b", "10": "k", "2": "c", "3": "d", "4": "e", "5": "f",
                       "6": "g", "7": "h", "8": "i", "9": "j"}})");
  EXPECT_THAT(config.labels(), ElementsAre("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"));
  EXPECT_THAT(config.to_json(), HasSubstr("\"8\": \"i\",\n    \"9\": \"j\",\n    \"10\": \"k\"\n"));
  config.set_num_labels(11);
  EXPECT_EQ(config.labels().front(), "a");
  // As in Python, a number that contradicts the names counts.
  config.set("num_labels", int64_t{3});
  EXPECT_THAT(config.labels(), ElementsAre("LABEL_0", "LABEL_1", "LABEL_2"));
  config.set_num_labels(2);
  EXPECT_EQ(config.to_json(), ModelConfig::from_json(R"({"id2label": {"0": "LABEL_0", "1":
      "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}})")
                                  .to_json());
  config.set_labels({"no", "yes", "maybe"});
  EXPECT_THAT(config.labels(), ElementsAre("no", "yes", "maybe"));
  EXPECT_EQ(config.integer("label2id.maybe"), 2);
}

TEST(ModelConfig, RefusesLabelsThatCannotBe) {
  const auto said = [](const char* json) {
    return error_from<DataError>([&] { (void)ModelConfig::from_json(json).labels(); });
  };
  EXPECT_THAT(said(R"({"num_labels": 2147483647})"),
              HasSubstr("\"num_labels\" is 2147483647; it should be a whole number from 1 to"));
  EXPECT_THAT(said(R"({"num_labels": -1})"), HasSubstr("\"num_labels\" is -1"));
  EXPECT_THAT(said(R"({"id2label": ["a"]})"), HasSubstr("\"id2label\" is a list"));
  EXPECT_THAT(said(R"({"id2label": {}})"), HasSubstr("\"id2label\" is an object"));
  EXPECT_THAT(said(R"({"id2label": {"x": "a"}})"), HasSubstr("\"id2label.x\" is \"a\""));
  EXPECT_THAT(said(R"({"id2label": {"0": {}}})"), HasSubstr("\"id2label.0\" is an object"));
  ModelConfig config;
  EXPECT_THROW(config.set_num_labels(0), DataError);
  EXPECT_THROW(config.set_labels({"same", "same"}), UsageError);
}

TEST(ModelConfig, KnowsTheTypeOfNumbersInBothSpellings) {
  EXPECT_EQ(ModelConfig().dtype(), std::nullopt);
  EXPECT_EQ(ModelConfig::from_json(R"({"dtype": "bfloat16"})").dtype(), at::kBFloat16);
  EXPECT_EQ(ModelConfig::from_json(R"({"torch_dtype": "torch.float16"})").dtype(), at::kHalf);
  EXPECT_EQ(ModelConfig::from_json(R"({"dtype": "float32", "torch_dtype": "float16"})").dtype(),
            at::kFloat);
  EXPECT_EQ(error_from<DataError>(
                [] { (void)ModelConfig::from_json(R"({"torch_dtype": "int3"})").dtype(); }),
            "DataError: \"torch_dtype\" is \"int3\"; it should be \"float32\", \"float16\", "
            "\"bfloat16\" or \"float64\"\n  at   config.json");
}

TEST(ModelConfig, FindsTheModelTypeOfAnArchitecture) {
  EXPECT_EQ(ModelConfig::from_json(R"({"model_type": "any"})").model_type(), "any");
  EXPECT_EQ(ModelConfig::from_json(R"({"architectures": ["GPT2LMHeadModel"]})").model_type(),
            "gpt2");
  EXPECT_THROW((void)ModelConfig().model_type(), DataError);
}

}  // namespace
}  // namespace accelerate::test
