#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "accelerate/errors.h"
#include "accelerate/tokenizers.h"
#include "tokenizers/small_tokenizers.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using Ids = std::vector<int64_t>;

std::vector<Ids> window_ids(const Encoding& encoding) {
  std::vector<Ids> ids{encoding.ids};
  for (const Encoding& window : encoding.overflowing) ids.push_back(window.ids);
  return ids;
}

TEST(Tokenizer, PutsSpecialTokensAroundATextAndItsPair) {
  const Tokenizer tokenizer = make(word_level_json({{"post_processor", bert_processing()}}));
  const Encoding encoding = tokenizer.encode("one two", "three");
  EXPECT_EQ(encoding.ids, (Ids{1, 3, 4, 2, 5, 2}));
  EXPECT_EQ(encoding.type_ids, (Ids{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(encoding.special_tokens_mask, (Ids{1, 0, 0, 1, 0, 1}));
  EXPECT_EQ(encoding.sequence_ids, (Ids{-1, 0, 0, -1, 1, -1}));
  EXPECT_EQ(encoding.word_ids, (Ids{-1, 0, 1, -1, 0, -1}));
  EXPECT_THAT(encoding.tokens, ElementsAre("[CLS]", "one", "two", "[SEP]", "three", "[SEP]"));
  EXPECT_EQ(encoding.offsets[2], (TokenOffsets{4, 7}));
  EXPECT_EQ(encoding.offsets[4], (TokenOffsets{0, 5}));
  EXPECT_EQ(tokenizer.special_tokens_to_add(), 2);
  EXPECT_EQ(tokenizer.special_tokens_to_add(true), 3);
}

TEST(Tokenizer, OffsetsCountCodePointsOfTheOriginalText) {
  const Tokenizer tokenizer = make(word_level_json({{"normalizer", {{"type", "NFKD"}}}}));
  const Encoding encoding = tokenizer.encode("é😀 one");
  EXPECT_EQ(encoding.offsets, (std::vector<TokenOffsets>{{0, 2}, {3, 6}}));
}

TEST(Tokenizer, CutsLongTextsIntoWindowsThatOverlapByTheStride) {
  const Tokenizer tokenizer = make(word_level_json());
  const std::string text = "one two three four five";
  const auto cut = [&](const TruncationOptions& options) {
    return window_ids(tokenizer.encode(text, {.truncation = options}));
  };
  EXPECT_THAT(cut({.max_length = 3, .stride = 1}), ElementsAre(Ids{3, 4, 5}, Ids{5, 6, 7}));
  EXPECT_THAT(cut({.max_length = 3, .stride = 1, .direction = TokenSide::kLeft}),
              ElementsAre(Ids{5, 6, 7}, Ids{3, 4, 5}));
  EXPECT_THAT(cut({.max_length = 4}), ElementsAre(Ids{3, 4, 5, 6}, Ids{7}));
  EXPECT_THAT(cut({.max_length = 5}), ElementsAre(Ids{3, 4, 5, 6, 7}));
}

TEST(Tokenizer, TruncatesWhatTheStrategySays) {
  const Tokenizer tokenizer = make(word_level_json());
  const auto cut = [&](TruncationStrategy strategy) {
    return tokenizer
        .encode("one two three", "four five",
                {.truncation = TruncationOptions{.max_length = 4, .strategy = strategy}})
        .ids;
  };
  EXPECT_EQ(cut(TruncationStrategy::kLongestFirst), (Ids{3, 4, 6, 7}));
  EXPECT_EQ(cut(TruncationStrategy::kOnlyFirst), (Ids{3, 4, 6, 7}));
  EXPECT_EQ(cut(TruncationStrategy::kOnlySecond), (Ids{3, 4, 5, 6}));
}

TEST(Tokenizer, SaysWhyATextCannotBeTruncated) {
  Tokenizer tokenizer = make(word_level_json());
  const auto message = [&](const TruncationOptions& options) {
    try {
      static_cast<void>(tokenizer.encode("one two three", {.truncation = options}));
    } catch (const UsageError& error) {
      return error.message();
    }
    return std::string("no error");
  };
  EXPECT_EQ(message({.max_length = 1, .strategy = TruncationStrategy::kOnlySecond}),
            "the text cannot be truncated: there is no second text to take tokens from");
  EXPECT_EQ(message({.max_length = 2, .stride = 2}),
            "the text cannot be truncated: a stride of 2 is not below the 2 tokens of a window "
            "without special tokens");
  EXPECT_EQ(message({.max_length = -1}), "expected a number from 0 to 2147483647, got -1");
  EXPECT_THROW(tokenizer.set_truncation(TruncationOptions{.max_length = 2, .stride = 3}),
               UsageError);
}

TEST(Tokenizer, PadsABatchToItsLongestTextAndToAMultiple) {
  const Tokenizer tokenizer = make(word_level_json());
  const std::vector<TextPair> texts{"one", "one two three"};
  const auto padded = [&](const PaddingOptions& options) {
    return tokenizer.encode_batch(texts, {.encode = {.padding = options}});
  };
  EXPECT_EQ(padded({.pad_id = 9})[0].ids, (Ids{3, 9, 9}));
  EXPECT_EQ(padded({.pad_id = 9})[0].attention_mask, (Ids{1, 0, 0}));
  EXPECT_EQ(padded({.pad_id = 9})[0].special_tokens_mask, (Ids{0, 1, 1}));
  EXPECT_EQ(padded({.direction = TokenSide::kLeft, .pad_to_multiple_of = 4, .pad_id = 9})[1].ids,
            (Ids{9, 3, 4, 5}));
  EXPECT_EQ(padded({.length = 2, .pad_id = 9})[1].ids, (Ids{3, 4, 5}));
}

TEST(Tokenizer, GivesTheSameBatchOnAnyNumberOfThreads) {
  const Tokenizer tokenizer = make(byte_level_json());
  std::vector<std::string> texts;
  for (int i = 0; i < 2000; ++i) texts.push_back("hello number " + std::to_string(i) + " hell");
  const std::vector<TextPair> views(texts.begin(), texts.end());
  const auto alone = tokenizer.encode_batch(views, {.threads = 1});
  const auto together = tokenizer.encode_batch(views, {.threads = 4});
  ASSERT_EQ(alone.size(), together.size());
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ(alone[i].ids, together[i].ids) << i;
    EXPECT_EQ(alone[i].ids, tokenizer.encode(texts[i]).ids) << i;
  }
}

TEST(Tokenizer, ThrowsTheErrorOfTheFirstTextOfABatchThatCannotBeEncoded) {
  const Tokenizer tokenizer = make(byte_level_json());
  std::vector<std::string> texts(500, std::string(200, 'x'));
  texts[300] = "ab\xff";
  texts[20] = "\xff";
  const std::vector<TextPair> views(texts.begin(), texts.end());
  try {
    static_cast<void>(tokenizer.encode_batch(views, {.threads = 4}));
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(), "a text is not valid UTF-8 at byte 0");
  }
}

TEST(Tokenizer, CountsTheWordsOfATextThatIsCutIntoThemAlready) {
  const Tokenizer tokenizer = make(byte_level_json());
  const std::vector<std::string> words{"hello", "he"};
  const Encoding encoding = tokenizer.encode_words(words);
  EXPECT_THAT(encoding.tokens, ElementsAre("hell", "o", "he"));
  EXPECT_EQ(encoding.word_ids, (Ids{0, 0, 1}));
  EXPECT_EQ(encoding.offsets[2], (TokenOffsets{0, 2}));
}

TEST(Tokenizer, AddsTokensToItselfAndNotToItsCopies) {
  Tokenizer tokenizer = make(byte_level_json());
  const Tokenizer copy = tokenizer;
  const std::vector<AddedToken> tokens{{.content = "<x>", .lstrip = true, .special = true}};
  EXPECT_EQ(tokenizer.add_tokens(tokens), 1);
  EXPECT_EQ(tokenizer.add_tokens(tokens), 0);
  EXPECT_EQ(tokenizer.token_to_id("<x>"), 259);
  EXPECT_EQ(tokenizer.vocabulary_size(), 260U);
  EXPECT_EQ(copy.token_to_id("<x>"), std::nullopt);
  const Encoding encoding = tokenizer.encode("he <x>he");
  EXPECT_EQ(encoding.ids, (Ids{256, 259, 256}));
  EXPECT_THAT(encoding.tokens, ElementsAre("he", " <x>", "he"));
  EXPECT_EQ(tokenizer.decode(encoding.ids), "hehe");
  EXPECT_EQ(tokenizer.decode(encoding.ids, {.skip_special_tokens = false}), "he<x>he");
}

TEST(Tokenizer, BytesOfAnyTextComeBackTheSame) {
  const Tokenizer tokenizer = make(byte_level_json());
  std::mt19937 random(7);
  const std::vector<std::string> parts{"hell", " ",      "\n",      "é",   "中",
                                       "😀",    "\u200d", "e\u0301", "1,5", "'s",
                                       "\t",   "\x01",   "\u0000",  "  ",  "<s>"};
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (unsigned n = random() % 20; n > 0; --n) text += parts[random() % parts.size()];
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text).ids), text);
  }
}

TEST(Tokenizer, ALongWordMergesLikeAShortOne) {
  const Tokenizer tokenizer = make(byte_level_json());
  std::string text;
  for (int i = 0; i < 100; ++i) text += "hello";
  const Encoding encoding = tokenizer.encode(text);
  ASSERT_EQ(encoding.size(), 200U);
  for (size_t i = 0; i < 200; i += 2) {
    EXPECT_EQ(encoding.tokens[i], "hell");
    EXPECT_EQ(encoding.tokens[i + 1], "o");
  }
}

TEST(Tokenizer, LeavesIdsThatItDoesNotHaveOutOfATextItDecodes) {
  const Tokenizer tokenizer = make(byte_level_json());
  EXPECT_EQ(tokenizer.decode(Ids{258, 99999, -5, 111}), "hello");
  EXPECT_EQ(tokenizer.decode(Ids{}), "");
  EXPECT_EQ(tokenizer.id_to_token(-5), std::nullopt);
}

TEST(Tokenizer, DecodesABatchInOrder) {
  const Tokenizer tokenizer = make(byte_level_json());
  const std::vector<std::vector<int64_t>> batch{Ids{258, 111}, Ids{}, Ids{111}};
  EXPECT_EQ(tokenizer.decode_batch(batch), (std::vector<std::string>{"hello", "", "o"}));
  EXPECT_TRUE(tokenizer.decode_batch({}).empty());
}

}  // namespace
}  // namespace accelerate::test
