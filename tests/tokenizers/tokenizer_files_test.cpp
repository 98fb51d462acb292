// What is refused, and what else than a tokenizer.json is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "accelerate/errors.h"
#include "accelerate/tokenizers.h"
#include "tokenizers/small_tokenizers.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
namespace fs = std::filesystem;

std::string complaint(const std::string& text) {
  try {
    static_cast<void>(Tokenizer::from_json(text, "file"));
  } catch (const DataError& error) {
    return error.message() + " at " + error.where();
  }
  return "no error";
}
std::string complaint(const json& json) { return complaint(json.dump()); }

json with(const char* part, const json& value) { return word_level_json({{part, value}}); }

TEST(TokenizerFile, RefusesUnknownComponentsByName) {
  EXPECT_EQ(complaint(with("normalizer", {{"type", "Shout"}})),
            "unknown normalizer type \"Shout\" at file: normalizer");
  EXPECT_EQ(complaint(with("pre_tokenizer", {{"type", "Telegraph"}})),
            "unknown pre_tokenizer type \"Telegraph\" at file: pre_tokenizer");
  EXPECT_EQ(complaint(with("post_processor", {{"type", "X"}})),
            "unknown post_processor type \"X\" at file: post_processor");
  EXPECT_EQ(complaint(with("decoder",
                           {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, {{"a", 1}}}}})),
            "a decoder has no type at file: decoder.decoders[1]");
  EXPECT_EQ(complaint(with("model", {{"type", "Neural"}})),
            "unknown model type \"Neural\" at file: model");
}

TEST(TokenizerFile, NamesTheFieldThatIsMissingOrWrong) {
  EXPECT_EQ(complaint(with("decoder", {{"type", "WordPiece"}, {"prefix", "##"}})),
            "the field \"cleanup\" is missing at file: decoder");
  EXPECT_EQ(complaint(with("pre_tokenizer", {{"type", "Digits"}, {"individual_digits", 1}})),
            "expected true or false at file: pre_tokenizer.individual_digits");
  EXPECT_EQ(complaint(with("truncation",
                           {{"max_length", -1}, {"stride", 0}, {"strategy", "LongestFirst"}})),
            "expected a whole number that is not negative at file: truncation.max_length");
  EXPECT_EQ(complaint(with("version", "2.0")), "expected version 1.0 at file.version");
  EXPECT_THAT(
      complaint(with("normalizer",
                     {{"type", "Replace"}, {"pattern", {{"Regex", "(a"}}}, {"content", ""}})),
      HasSubstr("missing closing parenthesis"));
}

TEST(TokenizerFile, RefusesAModelThatDoesNotFitTogether) {
  const json bpe = {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", {"a b"}}};
  EXPECT_EQ(complaint(with("model", bpe)),
            "a merge needs the token \"ab\", which is not in the vocabulary at file: model.merges");
  json ids = bpe;
  ids["vocab"]["b"] = -1;
  EXPECT_EQ(complaint(with("model", ids)),
            "expected an id from 0 to 4294967295 at file: model.vocab");
  const json unigram = {
      {"type", "Unigram"}, {"unk_id", 3}, {"vocab", json::array({json::array({"a", -1.0})})}};
  EXPECT_EQ(complaint(with("model", unigram)),
            "expected an id of the vocabulary at file: model.unk_id");
  json dropout = bpe;
  dropout["merges"] = json::array();
  dropout["dropout"] = 0.1;
  EXPECT_THAT(complaint(with("model", dropout)), HasSubstr("not supported at file: model.dropout"));
}

TEST(TokenizerFile, RefusesWhatIsNestedTooDeep) {
  EXPECT_THAT(complaint(std::string(100'000, '[')), HasSubstr("nested too deep"));
  json sequence = {{"type", "NFC"}};
  for (int i = 0; i < 20; ++i) sequence = {{"type", "Sequence"}, {"normalizers", {sequence}}};
  EXPECT_THAT(complaint(with("normalizer", sequence)),
              HasSubstr("components are nested too deeply"));
}

TEST(TokenizerFile, RefusesWhatIsNoJson) {
  EXPECT_THAT(complaint(std::string("{")), HasSubstr("the file is not valid JSON"));
  EXPECT_THAT(complaint(std::string("")), HasSubstr("the file is not valid JSON"));
  EXPECT_THAT(complaint(std::string("[]")), HasSubstr("an object was expected"));
  EXPECT_THROW(Tokenizer::from_file("/no/such/tokenizer.json"), DataError);
}

TEST(TokenizerFile, StopsATextThatGrowsWithoutEnd) {
  json normalizers = json::array();
  for (int i = 0; i < 10; ++i) {
    normalizers.push_back(
        {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100, 'a')}});
  }
  const Tokenizer tokenizer =
      make(with("normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}));
  EXPECT_THROW(tokenizer.encode("aaaa"), DataError);
}

TEST(TokenizerFile, StopsAPatternThatTriesForTooLong) {
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", "(a+)+b|(x+x+)+y"}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Tokenizer tokenizer = make(with("pre_tokenizer", split));
  EXPECT_THROW(tokenizer.encode(std::string(60, 'x') + std::string(60, 'a')), DataError);
}

class OldFiles : public testing::Test {
 protected:
  OldFiles() { fs::create_directories(folder_); }
  ~OldFiles() override { fs::remove_all(folder_); }
  OldFiles(const OldFiles&) = delete;
  OldFiles& operator=(const OldFiles&) = delete;

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) /
                           ("tokenizer_" + std::to_string(getpid()) + "_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(OldFiles, VocabTxtIsReadAsOfBert) {
  write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfine\n##ly\n");
  const Tokenizer tokenizer = Tokenizer::from_folder(folder_);
  EXPECT_THAT(tokenizer.encode("Finely [MASK]").tokens,
              testing::ElementsAre("[CLS]", "fine", "##ly", "[MASK]", "[SEP]"));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("Finely").ids), "finely");

  write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_EQ(Tokenizer::from_folder(folder_).encode("Finely").tokens[1], "[UNK]");
}

TEST_F(OldFiles, VocabJsonAndMergesAreReadAsOfGpt2OrRoberta) {
  json vocabulary = byte_level_json()["model"]["vocab"];
  write("merges.txt", "#version: 0.2\nh e\nl l\nhe ll\n");
  write("vocab.json", vocabulary.dump());
  EXPECT_THAT(Tokenizer::from_folder(folder_).encode("hello").tokens,
              testing::ElementsAre("hell", "o"));
  vocabulary.update({{"<s>", 300}, {"</s>", 301}, {"<mask>", 302}});
  write("vocab.json", vocabulary.dump());
  EXPECT_THAT(Tokenizer::from_folder(folder_).encode("hell <mask>").tokens,
              testing::ElementsAre("<s>", "hell", " <mask>", "</s>"));
}

TEST_F(OldFiles, AFolderWithoutAnyOfThemIsAnErrorThatSaysWhatIsMissing) {
  try {
    static_cast<void>(Tokenizer::from_folder(folder_));
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_EQ(error.where(), (folder_ / "tokenizer.json").string());
    EXPECT_THAT(error.hint(), HasSubstr("vocab.txt"));
  }
}

}  // namespace
}  // namespace accelerate::test
