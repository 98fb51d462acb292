// Every tokenizer that the folder of fixtures has, whatever its name: each case of its cases.json.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "accelerate/errors.h"
#include "accelerate/tokenizers.h"
#include "golden/reference_data.h"
#include "tokenizers/recorded_cases.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

const std::set<std::string> kKnownParts{"about",        "versions",
                                        "vocab_size",   "vocab_size_with_added",
                                        "token_to_id",  "settings_in_file",
                                        "cases",        "batch_cases",
                                        "decode_cases", "with_settings_of_file"};
const std::set<std::string> kKnownFields{"text",
                                         "pair",
                                         "add_special_tokens",
                                         "truncation",
                                         "padding",
                                         "ids",
                                         "tokens",
                                         "offsets",
                                         "type_ids",
                                         "decode",
                                         "overflowing",
                                         "attention_mask",
                                         "normalized",
                                         "error",
                                         "special_tokens_mask",
                                         "decode_skip_special",
                                         "batch",
                                         "expected",
                                         "word_ids"};

struct Recorded {
  Tokenizer tokenizer;
  json cases;
};

// The tokenizer of a folder with its own truncation and padding switched off.
Recorded load(const std::string& folder) {
  return {Tokenizer::from_folder(fixtures_folder().path / "tokenizers" / folder),
          load_fixture("tokenizers/" + folder + "/cases.json")};
}

void switch_off(Tokenizer& tokenizer) {
  tokenizer.set_truncation(std::nullopt);
  tokenizer.set_padding(std::nullopt);
}

const json& part_of(const json& cases, const char* name) {
  static const json none = json::array();
  return cases.contains(name) ? cases[name] : none;
}

void expect_known_fields(const json& recorded) {
  for (const auto& [name, value] : recorded.items()) {
    EXPECT_TRUE(kKnownFields.contains(name)) << "no test looks at the field " << name;
  }
}

void expect_decodes(const Tokenizer& tokenizer, const json& recorded, const Encoding& encoding) {
  if (recorded.contains("decode")) {
    EXPECT_EQ(tokenizer.decode(encoding.ids, {.skip_special_tokens = false}),
              recorded["decode"].get<std::string>());
  }
  if (recorded.contains("decode_skip_special")) {
    EXPECT_EQ(tokenizer.decode(encoding.ids), recorded["decode_skip_special"].get<std::string>());
  }
}

void run_case(const Tokenizer& tokenizer, const json& recorded, Record record) {
  SCOPED_TRACE(recorded.dump().substr(0, 300));
  expect_known_fields(recorded);
  const std::string text = recorded["text"];
  const EncodeOptions options = options_of(recorded);
  const auto encode = [&] {
    if (!recorded.contains("pair") || recorded["pair"].is_null()) {
      return tokenizer.encode(text, options);
    }
    return tokenizer.encode(text, recorded["pair"].get<std::string>(), options);
  };
  if (recorded.contains("error")) {
    EXPECT_THROW(encode(), Error);
    return;
  }
  const Encoding encoding = encode();
  EXPECT_EQ(difference(encoding, recorded, record), "");
  expect_decodes(tokenizer, recorded, encoding);
  // Left out where it is the text itself, and beside settings.
  const bool settings = recorded.contains("pair") || recorded.contains("truncation") ||
                        recorded.contains("padding") || recorded.contains("add_special_tokens");
  if (recorded.contains("normalized") || (record == Record::kWhole && !settings)) {
    EXPECT_EQ(tokenizer.normalize(text), recorded.value("normalized", text));
  }
}

void run_batch(const Tokenizer& tokenizer, const json& recorded, int threads) {
  SCOPED_TRACE(recorded.dump().substr(0, 300));
  expect_known_fields(recorded);
  std::vector<std::pair<std::string, std::optional<std::string>>> texts;
  for (const json& item : recorded["batch"]) {
    std::optional<std::string> pair;
    if (!item[1].is_null()) pair = item[1].get<std::string>();
    texts.emplace_back(item[0].get<std::string>(), pair);
  }
  std::vector<TextPair> views;
  for (const auto& [text, pair] : texts) views.emplace_back(text, pair);
  const BatchOptions options{.encode = options_of(recorded), .threads = threads};
  if (recorded.contains("error")) {
    EXPECT_THROW(tokenizer.encode_batch(views, options), Error);
    return;
  }
  const std::vector<Encoding> encodings = tokenizer.encode_batch(views, options);
  ASSERT_EQ(encodings.size(), recorded["expected"].size());
  for (size_t i = 0; i < encodings.size(); ++i) {
    EXPECT_EQ(difference(encodings[i], recorded["expected"][i], Record::kWhole), "") << i;
  }
}

void test_vocabulary(const Recorded& recorded) {
  // The three tests of texts, batches and ids have none to run otherwise.
  for (const char* part : {"cases", "batch_cases", "decode_cases"}) {
    EXPECT_FALSE(part_of(recorded.cases, part).empty()) << part;
  }
  for (const auto& [name, value] : recorded.cases.items()) {
    EXPECT_TRUE(kKnownParts.contains(name)) << "no test looks at " << name;
  }
  const Tokenizer& tokenizer = recorded.tokenizer;
  EXPECT_EQ(tokenizer.vocabulary_size(false), recorded.cases["vocab_size"]);
  EXPECT_EQ(tokenizer.vocabulary_size(), recorded.cases["vocab_size_with_added"]);
  for (const auto& [token, id] : recorded.cases["token_to_id"].items()) {
    const auto found = tokenizer.token_to_id(token);
    EXPECT_EQ(found ? json(*found) : json(), id) << token;
    if (found) {
      EXPECT_EQ(tokenizer.id_to_token(*found), token);
    }
  }
}

void test_settings_of_file(const Recorded& recorded) {
  const json& settings = recorded.cases["settings_in_file"];
  EXPECT_EQ(recorded.tokenizer.truncation().has_value(), !settings["truncation"].is_null());
  EXPECT_EQ(recorded.tokenizer.padding().has_value(), !settings["padding"].is_null());
  for (const json& item : part_of(recorded.cases, "with_settings_of_file")) {
    run_case(recorded.tokenizer, item, Record::kPart);
  }
}

class RecordedTest : public testing::Test {
 public:
  RecordedTest(std::string folder, void (*run)(Recorded&))
      : folder_(std::move(folder)), run_(run) {}
  void TestBody() override {
    Recorded recorded = load(folder_);
    run_(recorded);
  }

 private:
  std::string folder_;
  void (*run_)(Recorded&);
};

void add_test(const std::string& folder, const char* name, void (*run)(Recorded&)) {
  std::string suite = folder;
  std::ranges::replace_if(
      suite, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  testing::RegisterTest(
      ("Tokenizer_" + suite).c_str(), name, nullptr, folder.c_str(), __FILE__, __LINE__,
      [folder, run]() -> testing::Test* { return new RecordedTest(folder, run); });
}

int add_tests_of_folder(const std::string& folder) {
  add_test(folder, "HasTheVocabulary", [](Recorded& r) { test_vocabulary(r); });
  add_test(folder, "UsesTheSettingsOfItsFile", [](Recorded& r) { test_settings_of_file(r); });
  add_test(folder, "EncodesAndDecodesTexts", [](Recorded& r) {
    switch_off(r.tokenizer);
    for (const json& item : part_of(r.cases, "cases")) run_case(r.tokenizer, item, Record::kWhole);
  });
  add_test(folder, "EncodesBatches", [](Recorded& r) {
    switch_off(r.tokenizer);
    for (const json& item : part_of(r.cases, "batch_cases")) {
      run_batch(r.tokenizer, item, 1);
      run_batch(r.tokenizer, item, 4);
    }
  });
  add_test(folder, "DecodesAnyIds", [](Recorded& r) {
    for (const json& item : part_of(r.cases, "decode_cases")) {
      SCOPED_TRACE(item.dump().substr(0, 300));
      Encoding encoding;
      encoding.ids = item["ids"].get<std::vector<int64_t>>();
      if (item.contains("error")) {
        EXPECT_THROW(r.tokenizer.decode(encoding.ids), Error);
        continue;
      }
      expect_decodes(r.tokenizer, item, encoding);
    }
  });
  add_test(folder, "DecodesBatches", [](Recorded& r) {
    for (const char* key : {"decode", "decode_skip_special"}) {
      std::vector<std::vector<int64_t>> ids;
      std::vector<std::string> texts;
      for (const json& item : part_of(r.cases, "decode_cases")) {
        if (item.contains("error") || !item.contains(key)) continue;
        ids.push_back(item["ids"].get<std::vector<int64_t>>());
        texts.push_back(item[key]);
      }
      const bool skip = std::string(key) == "decode_skip_special";
      EXPECT_EQ(r.tokenizer.decode_batch(ids, {.skip_special_tokens = skip}), texts);
    }
  });
  return 6;
}

[[maybe_unused]] const int kTokenizerTests = register_recorded("TokenizerFixtures", [] {
  int added = 0;
  for (const fs::path& folder : fixture_folders("tokenizers")) {
    added += add_tests_of_folder(folder.filename());
  }
  return added;
});

}  // namespace
}  // namespace accelerate::test
