// Patterns of tokenizer files mean what they mean to Oniguruma.
#include "transformers/tokenizers/pattern/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "accelerate/errors.h"

namespace accelerate::tokenizers {
namespace {

using testing::ElementsAre;

std::vector<std::string> found(const std::string& expression, const std::string& text) {
  std::vector<Span> matches;
  Pattern::expression(expression, "here").find_all(text, matches);
  std::vector<std::string> texts;
  for (const Span match : matches) texts.push_back(text.substr(match.begin, match.size()));
  return texts;
}

TEST(Pattern, ARepeatedIntervalRepeatsInsteadOfBeingPossessive) {
  EXPECT_THAT(found(R"(\p{N}{1,3}+)", "12345"), ElementsAre("12345"));
  EXPECT_THAT(found(R"((ab){2}+)", "abababab"), ElementsAre("abababab"));
  EXPECT_THAT(found(R"(\p{N}{1,3})", "12345"), ElementsAre("123", "45"));
}

TEST(Pattern, AnIntervalMayHaveNoLowerEnd) {
  EXPECT_THAT(found("xa{,2}", "xaaa"), ElementsAre("xaa"));
  EXPECT_THAT(found("{x}", "{x}"), ElementsAre("{x}"));
}

TEST(Pattern, SpacesAreThoseOfUnicode) {
  EXPECT_THAT(found(R"(\s)", "\u0085\u00a0\u3000\u180e\u200b"),
              ElementsAre("\u0085", "\u00a0", "\u3000"));
}

TEST(Pattern, WordsHaveMarksAndConnectors) {
  EXPECT_THAT(found(R"(\w+)", "e\u0301_a-\u00bd"), ElementsAre("e\u0301_a", "\u00bd"));
  EXPECT_THAT(found(R"([\w]+)", "a\u00bd"), ElementsAre("a"));
  EXPECT_THAT(found(R"(\W)", "a\u0301 b"), ElementsAre(" "));
}

TEST(Pattern, ClassesMayStandInsideOfClassesAndIntersect) {
  EXPECT_THAT(found("[a-z&&[^aeiou]]+", "strange"), ElementsAre("str", "ng"));
  EXPECT_THAT(found("[[a-c]x]+", "abxd"), ElementsAre("abx"));
  EXPECT_THAT(found(R"([^[a-c]\s])", "ab c-"), ElementsAre("-"));
  EXPECT_THAT(found("[[:punct:]]", "a$."), ElementsAre("$", "."));
  EXPECT_THAT(found("[]a]", "]a"), ElementsAre("]", "a"));
}

TEST(Pattern, PropertiesHaveLongNamesAndScripts) {
  EXPECT_THAT(found(R"(\p{Letter}+)", "ab1"), ElementsAre("ab"));
  EXPECT_THAT(found(R"(\p{^L})", "a1"), ElementsAre("1"));
  EXPECT_THAT(found(R"(\p{Han}+)", "a中文。"), ElementsAre("中文"));
  EXPECT_THAT(found(R"(\x{4e2d})", "中"), ElementsAre("中"));
  EXPECT_THAT(found(R"(\u4e2d)", "中"), ElementsAre("中"));
  EXPECT_THAT(found(R"(\h+)", "xff"), ElementsAre("ff"));
}

TEST(Pattern, TheDotTakesEndsOfLinesWhereMSaysSo) {
  EXPECT_THAT(found("a.", "a\na."), ElementsAre("a."));
  EXPECT_THAT(found("(?m:a.)", "a\n"), ElementsAre("a\n"));
  EXPECT_THAT(found("^b$", "a\nb\nc"), ElementsAre("b"));
}

TEST(Pattern, AnEmptyMatchRightBehindAnotherDoesNotCount) {
  EXPECT_THAT(found("a*", "baac"), ElementsAre("", "aa", ""));
}

TEST(Pattern, CasesMayBeIgnored) {
  EXPECT_THAT(found("(?i:'s|'t)", "'S'\u017f"), ElementsAre("'S", "'\u017f"));
}

TEST(Pattern, SaysWhatIsWrongWithAnExpression) {
  try {
    static_cast<void>(Pattern::expression("[a", "here"));
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(), "the pattern \"[a\" cannot be used: a class does not end");
    EXPECT_EQ(error.where(), "here");
  }
}

}  // namespace
}  // namespace accelerate::tokenizers
