// Where a text is cut because its script changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizers/small_tokenizers.h"

namespace accelerate::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Code points [begin, end) of each piece.
std::vector<std::pair<int64_t, int64_t>> pieces(const std::string& text) {
  static const Tokenizer kTokenizer =
      make(word_level_json({{"pre_tokenizer", {{"type", "UnicodeScripts"}}}}));
  std::vector<std::pair<int64_t, int64_t>> result;
  for (const TokenOffsets& offsets : kTokenizer.encode(text).offsets) {
    result.emplace_back(offsets.begin, offsets.end);
  }
  return result;
}

TEST(UnicodeScripts, SpacesGoWithTheScriptBeforeThem) {
  using Piece = std::pair<int64_t, int64_t>;
  EXPECT_THAT(pieces("  hello どこで мир"), ElementsAre(Piece(2, 8), Piece(8, 12), Piece(12, 15)));
  EXPECT_THAT(pieces("a.b, c"),
              ElementsAre(Piece(0, 1), Piece(1, 2), Piece(2, 3), Piece(3, 5), Piece(5, 6)));
  EXPECT_THAT(pieces("  "), IsEmpty());
}

TEST(UnicodeScripts, JapaneseIsOneScript) {
  using Piece = std::pair<int64_t, int64_t>;
  EXPECT_THAT(pieces("日本ー語カナhi"), ElementsAre(Piece(0, 6), Piece(6, 8)));
}

TEST(UnicodeScripts, CharactersOfNoScriptGoWithAny) {
  using Piece = std::pair<int64_t, int64_t>;
  EXPECT_THAT(pieces("ab\u0378cd"), ElementsAre(Piece(0, 5)));
  EXPECT_THAT(pieces("\u0378 x"), ElementsAre(Piece(2, 3)));
  EXPECT_THAT(pieces("a\u0301b"), ElementsAre(Piece(0, 1), Piece(1, 2), Piece(2, 3)));
  EXPECT_THAT(pieces("1a2"), ElementsAre(Piece(0, 1), Piece(1, 2), Piece(2, 3)));
}

}  // namespace
}  // namespace accelerate::test
