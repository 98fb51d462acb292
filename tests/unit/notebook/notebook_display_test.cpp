// What a program shows in a notebook, and what it does where there is none.
#include "accelerate/notebook_display.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/line_chart.h"
#include "accelerate/progress.h"
#include "base/notebook_channel.h"
#include "support/error_of.h"
#include "unit/base/progress_processes.h"
#include "unit/notebook/notebook_channel_reader.h"

namespace accelerate {
namespace {

using nlohmann::json;
using test::InNotebook;
using test::Rank;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::StartsWith;

template <class T>
std::string shown_text(const T& value) {
  std::ostringstream text;
  detail::append_value(text, value);
  return text.str();
}

constexpr std::chrono::milliseconds kNoWait{0};

struct Opaque {};

struct Report {
  MimeBundle mime_bundle() const { return {{"text/markdown", "**done**"}}; }
};

TEST(NotebookValue, IsPrintedByItsOperatorOrElementByElement) {
  EXPECT_EQ(shown_text(1.5), "1.5");
  EXPECT_EQ(shown_text(std::string("ab")), "ab");
  EXPECT_EQ(shown_text(std::vector<int>{1, 2}), "{1, 2}");
  EXPECT_EQ(shown_text(std::vector<int>{}), "{}");
  EXPECT_EQ(shown_text(std::map<std::string, std::vector<int>>{{"a", {1}}, {"b", {}}}),
            "{(a, {1}), (b, {})}");
  EXPECT_EQ(shown_text(std::pair(1, Opaque{})), "(1, (accelerate::(anonymous namespace)::Opaque))");
  EXPECT_EQ(detail::readable_type_name(typeid(std::vector<int>)),
            "std::vector<int, std::allocator<int> >");
}

TEST(DisplayOutsideOfNotebooks, PrintsThePlainText) {
  ASSERT_FALSE(in_notebook());
  testing::internal::CaptureStdout();
  display(MimeBundle{{"text/plain", "words"}, {"text/html", "<b>words</b>"}});
  display_html("<b>nothing plain</b>");
  display(LineChart("loss").add("training", {2, 1}));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "words\nloss\n  training: 2 points, 1 to 2\n");
}

TEST_F(InNotebook, FormsGoOutByTypeAndImagesAsBase64) {
  ASSERT_TRUE(in_notebook());
  display(MimeBundle{{"text/plain", "a \"quote\"\n"}, {"image/svg+xml", "<svg/>"}}, "mine");
  EXPECT_THAT(
      messages(),
      ElementsAre(json{{"id", "mine"},
                       {"data", {{"image/svg+xml", "<svg/>"}, {"text/plain", "a \"quote\"\n"}}}}));
  // All lengths of a last group, from RFC 4648.
  for (const auto& [bytes, text] : std::map<std::string, std::string>{{"f", "Zg=="},
                                                                      {"fo", "Zm8="},
                                                                      {"foo", "Zm9v"},
                                                                      {"foob", "Zm9vYg=="},
                                                                      {"\xff\xfe", "//4="}}) {
    std::ofstream(folder_ / "picture.png", std::ios::binary) << bytes;
    display_image(folder_ / "picture.png");
    EXPECT_THAT(messages(),
                ElementsAre(json{{"id", ""},
                                 {"data", {{"image/png", text}, {"text/plain", "picture.png"}}}}));
  }
}

TEST_F(InNotebook, AClassOfYourOwnIsShownByItsBundle) {
  display(Report{}, "report");
  EXPECT_THAT(messages(),
              ElementsAre(json{{"id", "report"}, {"data", {{"text/markdown", "**done**"}}}}));
  EXPECT_EQ(LineChart("loss").mime_bundle().at("text/plain"), "loss");
}

TEST_F(InNotebook, ALargeOutputArrivesWhole) {
  const std::string html(300'000, 'x');
  display_html(html, "large");
  const auto found = messages();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0]["data"]["text/html"].get<std::string>(), html);
}

TEST_F(InNotebook, TheLastExpressionOfACellIsShown) {
  int evaluated = 0;
  const auto nothing = [&] { ++evaluated; };
  std::ostringstream stream;
  static_cast<void>((nothing(), detail::kShownValue));
  static_cast<void>(((stream << 1), detail::kShownValue));
  EXPECT_EQ(evaluated, 1);
  EXPECT_TRUE(messages().empty());
  static_cast<void>((true, detail::kShownValue));
  static_cast<void>((LineChart("loss"), detail::kShownValue));
  const auto found = messages();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]["data"], (json{{"text/plain", "true"}}));
  EXPECT_THAT(found[1]["data"]["image/svg+xml"].get<std::string>(), StartsWith("<svg "));
}

TEST_F(InNotebook, ImagesThatCannotBeShownAreNamed) {
  const auto unknown = test::error_text<DataError>([&] { display_image("a.bmp"); });
  EXPECT_THAT(unknown, HasSubstr("unknown kind of image\n  at   a.bmp\n"));
  const auto missing = test::error_text<DataError>([&] { display_image(folder_ / "no.png"); });
  EXPECT_THAT(missing, HasSubstr("the image cannot be read, or is empty"));
}

TEST_F(InNotebook, AKernelThatHasGoneIsAnError) {
  setenv("ACCELERATE_NOTEBOOK_CHANNEL", (folder_ / "gone").c_str(), 1);
  EXPECT_THAT(test::error_text<DataError>([] { display_html("<p>"); }),
              HasSubstr("the notebook does not take what is to be displayed"));
}

TEST_F(InNotebook, AKernelThatDoesNotReadHoldsNobodyUp) {
  const auto begin = std::chrono::steady_clock::now();
  ProgressBar bar(2000, Rank{}, {.description = std::string(200, 'x')});
  for (int step = 0; step < 2000; ++step) bar.set_postfix(std::to_string(step));
  while (show_in_notebook({{"text/plain", std::string(2000, 'x')}}, "", kNoWait)) {
  }
  EXPECT_FALSE(show_in_notebook({{"text/html", std::string(100'000, 'x')}}, "", kNoWait));
  bar.close();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().filename(), "channel") << "nobody removes it";
  }
  // There is room again.
  EXPECT_FALSE(messages().empty());
  EXPECT_TRUE(show_in_notebook({{"text/plain", "late"}}, "", kNoWait));
}

TEST_F(InNotebook, BarsAreOneOutputThatIsReplaced) {
  std::vector<int> epochs(2);
  std::vector<int> batches(3);
  for ([[maybe_unused]] int epoch : progress(epochs, Rank{}, {.description = "epochs"})) {
    for ([[maybe_unused]] int batch :
         progress(batches, Rank{}, {.description = "batches", .leave = false})) {
    }
  }
  const auto first = messages();
  ASSERT_GE(first.size(), 6U);
  for (const json& drawing : first) EXPECT_EQ(drawing["id"], first[0]["id"]);
  EXPECT_THAT(first[0]["data"]["text/plain"].get<std::string>(), StartsWith("epochs:   0%|"));
  EXPECT_THAT(first[1]["data"]["text/plain"].get<std::string>(),
              MatchesRegex("epochs:   0%.*\nbatches:   0%.*"));
  EXPECT_THAT(first.back()["data"]["text/plain"].get<std::string>(),
              MatchesRegex("epochs: 100%\\|(█)+\\| 2/2 [^\n]*"));

  for ([[maybe_unused]] int batch : progress(batches, Rank{}, {.description = "test"})) {
  }
  const auto second = messages();
  ASSERT_FALSE(second.empty());
  EXPECT_NE(second[0]["id"], first[0]["id"]);
  EXPECT_THAT(second.back()["data"]["text/plain"].get<std::string>(), StartsWith("test: 100%"));
}

TEST_F(InNotebook, BarsThatHaveEndedStandAboveTheOthers) {
  std::vector<int> epochs(2);
  for ([[maybe_unused]] int epoch : progress(epochs, Rank{}, {.description = "epochs"})) {
    ProgressBar batches(5, Rank{}, {.description = "batches"});
    batches.update(5);
  }
  EXPECT_THAT(messages().back()["data"]["text/plain"].get<std::string>(),
              MatchesRegex("batches: 100%[^\n]*\nbatches: 100%[^\n]*\nepochs: 100%[^\n]*"));
}

TEST(LineChartSvg, HasItsCurvesNamesAndLabels) {
  const std::string svg = LineChart("a < b & c", {.x_label = "step", .y_label = "loss"})
                              .add("first", {1, 2, 4})
                              .add("second", {0, 10, 20}, {4, 3, 1})
                              .svg();
  EXPECT_THAT(svg,
              StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"320\""));
  for (const char* text : {">a &lt; b &amp; c</text>", ">step</text>", ">loss</text>",
                           ">first</text>", ">second</text>", ">20</text>"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  // x from 0 to 20 over 64 to 624, y from 1 to 4 over 272 to 36.
  EXPECT_THAT(svg, HasSubstr("<path d=\"M92.0 272.0L120.0 193.3L148.0 36.0\""));
  EXPECT_THAT(svg, HasSubstr("<path d=\"M64.0 36.0L344.0 114.7L624.0 272.0\""));
}

TEST(LineChartSvg, LeavesGapsWhereAValueIsNotFinite) {
  const std::string svg = LineChart().add("", {1, NAN, 3, 2}).svg();
  EXPECT_THAT(svg, HasSubstr("<path d=\"M64.0 272.0M437.3 36.0L624.0 154.0\""));
}

TEST(LineChartSvg, IsThereWithoutValuesAndWithEqualOnes) {
  EXPECT_THAT(LineChart("empty").svg(), HasSubstr(">empty</text>"));
  EXPECT_THAT(LineChart().add("", {2, 2}).svg(), HasSubstr("M64.0 154.0L624.0 154.0"));
}

TEST(LineChartSvg, CurvesOfUnequalLengthsAreRefused) {
  EXPECT_THAT(test::error_text<UsageError>([] {
                LineChart().add("loss", {1, 2}, {1});
              }),
              HasSubstr("the curve 'loss' has 2 values of x and 1 of y"));
}

}  // namespace
}  // namespace accelerate
