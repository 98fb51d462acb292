#include "accelerate/transformers/pretrained_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <torch/torch.h>

#include "accelerate/errors.h"
#include "transformers/tokenizer_folder.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using transformers::AutoTokenizer;
using transformers::ModelInputs;
using transformers::Padding;
using transformers::PretrainedTokenizer;

std::vector<std::string> tokens_of(const PretrainedTokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (const auto& token : {tokenizer.special_tokens().bos, tokenizer.special_tokens().eos,
                            tokenizer.special_tokens().unk, tokenizer.special_tokens().pad,
                            tokenizer.special_tokens().mask}) {
    tokens.push_back(token.value_or("none"));
  }
  return tokens;
}

TEST(PretrainedTokenizer, PadsABatchToItsLongestTextAndTellsThePartsOfAPair) {
  const auto tokenizer = words_tokenizer();
  const ModelInputs inputs = tokenizer({"one", {"two three", "four"}});
  EXPECT_TRUE(inputs.input_ids.equal(rows({{2, 5, 3, 0, 0, 0}, {2, 6, 7, 3, 8, 3}})));
  EXPECT_TRUE(inputs.attention_mask.equal(rows({{1, 1, 1, 0, 0, 0}, {1, 1, 1, 1, 1, 1}})));
  EXPECT_TRUE(inputs.token_type_ids.equal(rows({{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 1, 1}})));
  EXPECT_FALSE(inputs.labels.defined());
}

TEST(PretrainedTokenizer, TakesOneTextAPairOrLists) {
  const auto tokenizer = words_tokenizer();
  EXPECT_TRUE(tokenizer("one two").input_ids.equal(rows({{2, 5, 6, 3}})));
  EXPECT_TRUE(tokenizer("one", "two").input_ids.equal(rows({{2, 5, 3, 6, 3}})));
  const std::vector<std::string> texts{"one", "two two"};
  EXPECT_TRUE(tokenizer(texts).input_ids.equal(rows({{2, 5, 3, 0}, {2, 6, 6, 3}})));
  EXPECT_THAT(tokenizer.encode("one two").ids, ElementsAre(2, 5, 6, 3));
  EXPECT_THAT(tokenizer.encode_batch(texts)[0].ids, ElementsAre(2, 5, 3));
}

TEST(PretrainedTokenizer, CutsAndFillsAsItIsTold) {
  auto tokenizer = words_tokenizer({{"tokenizer_class", "BertTokenizer"}, {"model_max_length", 5}});
  EXPECT_TRUE(tokenizer("one two three four", {.truncation = true})
                  .input_ids.equal(rows({{2, 5, 6, 7, 3}})));
  EXPECT_TRUE(tokenizer("one two three four", {.truncation = true, .max_length = 4})
                  .input_ids.equal(rows({{2, 5, 6, 3}})));
  EXPECT_TRUE(
      tokenizer("one", {.padding = Padding::kMaxLength}).input_ids.equal(rows({{2, 5, 3, 0, 0}})));
  EXPECT_TRUE(tokenizer("one", {.pad_to_multiple_of = 4, .padding_side = TokenSide::kLeft})
                  .input_ids.equal(rows({{0, 2, 5, 3}})));
  tokenizer.set_truncation_side(TokenSide::kLeft);
  EXPECT_TRUE(tokenizer("one two three four", {.truncation = true})
                  .input_ids.equal(rows({{2, 6, 7, 8, 3}})));
  EXPECT_THAT(tokenizer.encode("one two", {.add_special_tokens = false}).ids, ElementsAre(5, 6));
}

TEST(PretrainedTokenizer, DoesNotUseTheSettingsInsideOfItsFile) {
  const ScratchFolder folder;
  json file = words_json();
  file["truncation"] = {
      {"max_length", 3}, {"stride", 0}, {"strategy", "LongestFirst"}, {"direction", "Left"}};
  file["padding"] = {
      {"strategy", {{"Fixed", 9}}}, {"direction", "Left"},  {"pad_id", 0},
      {"pad_type_id", 1},           {"pad_token", "[PAD]"}, {"pad_to_multiple_of", nullptr}};
  folder.write("tokenizer.json", file);
  const auto tokenizer = AutoTokenizer::from_pretrained(folder.path());
  EXPECT_THAT(tokenizer.encode("one two three").ids, ElementsAre(2, 5, 6, 7, 3));
  // They only say where a side and a token are not named elsewhere.
  EXPECT_EQ(tokenizer.padding_side(), TokenSide::kLeft);
  EXPECT_EQ(tokenizer.truncation_side(), TokenSide::kLeft);
  EXPECT_EQ(tokenizer.pad_token_id(), 0);
}

TEST(PretrainedTokenizer, ReadsSpecialTokensFromTheSettingsTheMapAndTheKind) {
  EXPECT_THAT(tokens_of(words_tokenizer()),
              ElementsAre("none", "none", "[UNK]", "[PAD]", "[MASK]"));
  EXPECT_THAT(tokens_of(words_tokenizer({{"tokenizer_class", "PreTrainedTokenizerFast"},
                                         {"pad_token", "[SEP]"},
                                         {"eos_token", {{"content", "[SEP]"}}}})),
              ElementsAre("none", "[SEP]", "none", "[SEP]", "none"));
  const ScratchFolder folder;
  folder.write("tokenizer.json", words_json());
  folder.write("tokenizer_config.json", {{"pad_token", "[SEP]"}});
  folder.write("special_tokens_map.json", {{"pad_token", "[PAD]"}, {"mask_token", "[MASK]"}});
  EXPECT_THAT(tokens_of(AutoTokenizer::from_pretrained(folder.path())),
              ElementsAre("none", "none", "none", "[PAD]", "[MASK]"));
}

TEST(PretrainedTokenizer, AddsATokenThatOnlyTheSettingsName) {
  const auto tokenizer =
      words_tokenizer({{"tokenizer_class", "BertTokenizer"}, {"bos_token", "<begin>"}});
  EXPECT_EQ(tokenizer.bos_token_id(), 14);
  EXPECT_EQ(tokenizer.size(), 15);
  EXPECT_THAT(tokenizer.encode("one<begin>two").ids, ElementsAre(2, 5, 14, 6, 3));
  EXPECT_THAT(tokenizer.special_token_ids(), ElementsAre(0, 1, 2, 3, 4, 14));
}

TEST(PretrainedTokenizer, KnowsTheKindFromTheModelBesideIt) {
  const ScratchFolder folder;
  folder.write("tokenizer.json", words_json());
  folder.write("config.json", {{"model_type", "bert"}});
  EXPECT_TRUE(AutoTokenizer::from_pretrained(folder.path()).has_token_type_ids());
  folder.write("config.json", {{"model_type", "distilbert"}});
  const auto tokenizer = AutoTokenizer::from_pretrained(folder.path());
  EXPECT_FALSE(tokenizer.has_token_type_ids());
  EXPECT_FALSE(tokenizer("one").token_type_ids.defined());
  EXPECT_EQ(tokenizer.mask_token_id(), 4);
  folder.write("tokenizer_config.json", {{"model_input_names", {"input_ids", "token_type_ids"}}});
  EXPECT_TRUE(AutoTokenizer::from_pretrained(folder.path()).has_token_type_ids());
}

TEST(PretrainedTokenizer, TakesAnEnormousModelMaxLengthForNone) {
  const json config = json::parse(
      R"({"tokenizer_class": "BertTokenizer", "model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(words_tokenizer(config).model_max_length(), std::nullopt);
  EXPECT_EQ(words_tokenizer({{"model_max_length", 512}}).model_max_length(), 512);
}

TEST(PretrainedTokenizer, DecodesTensorsWithOrWithoutSpecialTokens) {
  const auto tokenizer = words_tokenizer();
  const ModelInputs inputs = tokenizer({"one two", "three"});
  EXPECT_EQ(tokenizer.decode(inputs.input_ids[1]), "[CLS] three [SEP] [PAD]");
  EXPECT_THAT(
      tokenizer.batch_decode(inputs.input_ids.to(torch::kInt32), {.skip_special_tokens = true}),
      ElementsAre("one two", "three"));
  EXPECT_THROW(static_cast<void>(tokenizer.decode(inputs.input_ids)), UsageError);
}

TEST(PretrainedTokenizer, CleansUpSpacesOnlyWhereTheSettingsSaySo) {
  json config{{"tokenizer_class", "BertTokenizer"}, {"bos_token", "."}};
  const std::vector<int64_t> ids{5, 14};
  EXPECT_EQ(words_tokenizer(config).decode(ids), "one .");
  config["clean_up_tokenization_spaces"] = true;
  EXPECT_EQ(words_tokenizer(config).decode(ids), "one.");
}

TEST(PretrainedTokenizer, NeedsAPadTokenOnlyForTextsOfDifferentLengths) {
  auto tokenizer = words_tokenizer({{"tokenizer_class", "LlamaTokenizer"}});
  EXPECT_EQ(tokenizer.pad_token_id(), std::nullopt);
  EXPECT_EQ(tokenizer.padding_side(), TokenSide::kLeft);
  EXPECT_TRUE(tokenizer({"one", "two"}).input_ids.equal(rows({{2, 5, 3}, {2, 6, 3}})));
  EXPECT_THROW(static_cast<void>(tokenizer({"one", "two two"})), UsageError);
  EXPECT_THROW(static_cast<void>(tokenizer("one", {.pad_to_multiple_of = 8})), UsageError);
  tokenizer.set_pad_token("[SEP]");
  EXPECT_TRUE(tokenizer({"one", "two two"}).input_ids.equal(rows({{3, 2, 5, 3}, {2, 6, 6, 3}})));
  EXPECT_THROW(tokenizer.set_pad_token("<none>"), UsageError);
}

TEST(PretrainedTokenizer, SaysWhatIsWrongWithTensorsOfDifferentLengths) {
  const auto tokenizer = words_tokenizer();
  try {
    static_cast<void>(tokenizer({"one", "two two"}, {.padding = Padding::kNone}));
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(), "texts 0 and 1 have 3 and 4 tokens");
  }
  EXPECT_THROW(static_cast<void>(tokenizer(std::vector<std::string>{})), DataError);
}

TEST(PretrainedTokenizer, RefusesSettingsThatMakeNoSense) {
  const auto complaint = [](const json& config) -> std::string {
    try {
      static_cast<void>(words_tokenizer(config));
    } catch (const DataError& error) {
      return error.message() + " at " + std::filesystem::path(error.where()).filename().string();
    }
    return "no error";
  };
  EXPECT_EQ(complaint({{"padding_side", "top"}}),
            "expected left or right at tokenizer_config.json.padding_side");
  EXPECT_EQ(
      complaint({{"model_max_length", -3}}),
      "expected a whole number that is not negative at tokenizer_config.json.model_max_length");
  EXPECT_EQ(complaint({{"pad_token", 7}}),
            "an object was expected at tokenizer_config.json.pad_token");
  EXPECT_EQ(complaint({{"pad_token", ""}}),
            "a token without a text at tokenizer_config.json.pad_token");
  EXPECT_EQ(complaint({{"added_tokens_decoder", {{"-1", {{"content", "x"}}}}}}),
            "expected an id as its name at tokenizer_config.json.added_tokens_decoder.-1");
  EXPECT_EQ(complaint(json::array()), "an object was expected at tokenizer_config.json");
}

TEST(PretrainedTokenizer, SavesWhatItReadAndWhatWasChanged) {
  auto tokenizer = words_tokenizer({{"tokenizer_class", "BertTokenizer"},
                                    {"model_max_length", 64},
                                    {"name_or_path", "somewhere"},
                                    {"do_lower_case", true}});
  const std::vector<AddedToken> more{{.content = "<tool>", .normalized = false, .special = true}};
  EXPECT_EQ(tokenizer.add_tokens(more), 1);
  tokenizer.set_pad_token("<tool>");
  tokenizer.set_padding_side(TokenSide::kLeft);
  const ScratchFolder folder;
  tokenizer.save_pretrained(folder.path() / "saved");
  const auto loaded = AutoTokenizer::from_pretrained((folder.path() / "saved").string());
  EXPECT_EQ(loaded.pad_token_id(), 14);
  EXPECT_EQ(loaded.padding_side(), TokenSide::kLeft);
  EXPECT_EQ(loaded.model_max_length(), 64);
  EXPECT_TRUE(loaded.has_token_type_ids());
  const std::vector<std::string> texts{"one <tool> two", "nine"};
  EXPECT_TRUE(loaded(texts).input_ids.equal(rows({{2, 5, 14, 6, 3}, {14, 14, 2, 13, 3}})));
  std::ifstream file(folder.path() / "saved" / "tokenizer_config.json");
  const json config = json::parse(file);
  EXPECT_FALSE(config.contains("name_or_path"));
  EXPECT_EQ(config["do_lower_case"], true);
}

TEST(PretrainedTokenizer, SavesAnOlderFolderWithATokenizerJson) {
  const ScratchFolder folder;
  std::ofstream(folder.path() / "vocab.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n##s\n";
  folder.write("config.json", {{"model_type", "bert"}});
  const auto tokenizer = AutoTokenizer::from_pretrained(folder.path());
  EXPECT_THAT(tokenizer.encode("Hellos").ids, ElementsAre(2, 5, 6, 3));
  const ScratchFolder saved;
  tokenizer.save_pretrained(saved.path());
  EXPECT_TRUE(std::filesystem::exists(saved.path() / "vocab.txt"));
  EXPECT_TRUE(std::filesystem::exists(saved.path() / "tokenizer.json"));
  const auto loaded = AutoTokenizer::from_pretrained(saved.path());
  EXPECT_THAT(loaded.encode("Hellos").ids, ElementsAre(2, 5, 6, 3));
  EXPECT_TRUE(loaded.has_token_type_ids());
  EXPECT_EQ(loaded.pad_token_id(), 0);
}

TEST(PretrainedTokenizer, WritesATokenThatIsAddedAgainOnce) {
  auto tokenizer = words_tokenizer();
  const std::vector<AddedToken> more{{.content = "<tool>", .special = true},
                                     {.content = "[PAD]", .normalized = false, .special = true},
                                     {.content = ""}};
  tokenizer.add_tokens(more);
  tokenizer.add_tokens(more);
  const ScratchFolder folder;
  tokenizer.save_pretrained(folder.path());
  std::ifstream file(folder.path() / "tokenizer.json");
  const json saved = json::parse(file);
  EXPECT_EQ(saved["added_tokens"].size(), 6U);
  EXPECT_EQ(saved["added_tokens"][0]["content"], "[PAD]");
  EXPECT_EQ(saved["added_tokens"][5]["id"], 14);
}

TEST(PretrainedTokenizer, ReadsOnlyRegularFilesThatLieInItsFolder) {
  const ScratchFolder secret;
  std::ofstream(secret.path() / "secret") << "a key";
  const ScratchFolder folder;
  folder.write("tokenizer.json", words_json());
  const auto complaint = [&]() -> std::string {
    try {
      static_cast<void>(AutoTokenizer::from_pretrained(folder.path()));
    } catch (const DataError& error) {
      return error.message();
    }
    return "no error";
  };
  const std::filesystem::path link = folder.path() / "merges.txt";
  std::filesystem::create_symlink(secret.path() / "secret", link);
  EXPECT_THAT(complaint(), HasSubstr("a link leads out of the folder"));
  std::filesystem::remove(link);
  std::filesystem::create_symlink("tokenizer.json", link);
  EXPECT_EQ(complaint(), "no error");
  std::filesystem::remove(link);
  ASSERT_EQ(mkfifo(link.c_str(), 0600), 0);
  EXPECT_THAT(complaint(), HasSubstr("regular"));
}

TEST(PretrainedTokenizer, FollowsTheLinksOfASnapshotOfTheHub) {
  const ScratchFolder cache;
  const std::filesystem::path model = cache.path() / "models--me--words";
  std::filesystem::create_directories(model / "blobs");
  std::filesystem::create_directories(model / "snapshots" / "abc");
  std::ofstream(model / "blobs" / "1") << words_json().dump();
  std::filesystem::create_symlink("../../blobs/1", model / "snapshots" / "abc" / "tokenizer.json");
  EXPECT_EQ(AutoTokenizer::from_pretrained((model / "snapshots" / "abc").string()).size(), 14);
}

TEST(PretrainedTokenizer, RefusesSettingsThatAreTooLong) {
  const ScratchFolder folder;
  folder.write("tokenizer.json", words_json());
  folder.write("tokenizer_config.json", json{{"note", "x"}});
  std::filesystem::resize_file(folder.path() / "tokenizer_config.json", (16 << 20) + 1);
  EXPECT_THROW(static_cast<void>(AutoTokenizer::from_pretrained(folder.path())), DataError);
}

TEST(PretrainedTokenizer, NamesTheFileThatIsMissing) {
  const ScratchFolder folder;
  try {
    static_cast<void>(AutoTokenizer::from_pretrained(folder.path()));
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.where(), HasSubstr("tokenizer.json"));
  }
}

}  // namespace
}  // namespace accelerate::test
