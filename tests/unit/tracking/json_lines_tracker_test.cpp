// A run as lines of JSON.
#include "tracking/json_lines_tracker.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tracking/json_text.h"
#include "unit/tracking/tracked_run.h"

namespace accelerate::tracking {
namespace {

using nlohmann::json;
using test::at_step;
using test::lines_of;
using test::log_one;
using testing::ElementsAre;

using JsonLines = test::TrackedRun;

TEST_F(JsonLines, EveryCallIsALineThatAJsonParserReads) {
  JsonLinesTracker tracker({});
  tracker.start(run());
  tracker.store_init_configuration({{"lr", 2e-5}, {"model", "bert \"x\""}, {"fp16", false}});
  log_one(tracker, 1, {{"loss", 0.5}, {"epoch", 3}, {"note", "a\nb"}});
  log_one(tracker, 2, {{"losses", TrackedGroup{{"a", 1.0}, {"b", 0.25}}}});
  tracker.log(TrackerConfig{{"last", 1.0}}, at_step({}));
  tracker.finish();
  const auto lines = lines_of(read("demo/metrics.jsonl"));
  ASSERT_EQ(lines.size(), 4U);
  const json config = json::parse(lines[0]);
  EXPECT_EQ(config["project"], "demo");
  EXPECT_EQ(config["config"], json({{"lr", 2e-5}, {"model", "bert \"x\""}, {"fp16", false}}));
  EXPECT_EQ(lines[1], R"({"step":1,"time":1700000001.0,"loss":0.5,"epoch":3,"note":"a\nb"})");
  EXPECT_EQ(json::parse(lines[2])["losses"]["b"], 0.25);
  EXPECT_FALSE(json::parse(lines[3]).contains("step"));
}

TEST_F(JsonLines, NumbersComeBackToTheLastBit) {
  JsonLinesTracker tracker({});
  tracker.start(run());
  const std::vector<double> numbers = {0.1, 1.0 / 3, 1e300, 5e-324, -0.0, 123456789012345678.0};
  for (size_t i = 0; i < numbers.size(); ++i) {
    log_one(tracker, static_cast<int64_t>(i), {{"x", numbers[i]}});
  }
  log_one(tracker, 10, {{"x", std::numeric_limits<int64_t>::max()}});
  tracker.finish();
  const auto lines = lines_of(read("demo/metrics.jsonl"));
  for (size_t i = 0; i < numbers.size(); ++i) {
    EXPECT_EQ(json::parse(lines[i])["x"].get<double>(), numbers[i]) << lines[i];
  }
  EXPECT_EQ(json::parse(lines.back())["x"].get<int64_t>(), std::numeric_limits<int64_t>::max());
}

TEST_F(JsonLines, WhatJsonHasNoNumberForIsAText) {
  JsonLinesTracker tracker({});
  tracker.start(run());
  log_one(tracker, 1, {{"a", std::nan("")}, {"b", HUGE_VAL}, {"c", -HUGE_VAL}});
  tracker.finish();
  const json line = json::parse(read("demo/metrics.jsonl"));
  EXPECT_EQ(line["a"], "NaN");
  EXPECT_EQ(line["b"], "Infinity");
  EXPECT_EQ(line["c"], "-Infinity");
}

TEST_F(JsonLines, TextThatIsNotUtf8IsStillALineOfJson) {
  JsonLinesTracker tracker({});
  tracker.start(run());
  log_one(tracker, 1, {{"a", "\xff\xc3(\xe2\x82"}, {"b\x01", "é😀"}});
  tracker.finish();
  const json line = json::parse(read("demo/metrics.jsonl"));
  EXPECT_EQ(line["b\x01"], "é😀");
  EXPECT_EQ(line["a"], "\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_F(JsonLines, NamesOfTheLineItselfAreKeptApart) {
  JsonLinesTracker tracker({});
  tracker.start(run());
  log_one(tracker, 1, {{"step", 7}, {"time", 8}});
  tracker.finish();
  const json line = json::parse(read("demo/metrics.jsonl"));
  EXPECT_EQ(line["step"], 1);
  EXPECT_EQ(line["step_"], 7);
  EXPECT_EQ(line["time_"], 8);
}

TEST_F(JsonLines, NewRunPutsTheFileOfAnEarlierOneAside) {
  for (int round = 0; round < 3; ++round) {
    JsonLinesTracker tracker({});
    tracker.start(run());
    log_one(tracker, 1, {{"round", round}});
    tracker.finish();
  }
  EXPECT_EQ(json::parse(read("demo/metrics.1.jsonl"))["round"], 0);
  EXPECT_EQ(json::parse(read("demo/metrics.2.jsonl"))["round"], 1);
  EXPECT_EQ(json::parse(read("demo/metrics.jsonl"))["round"], 2);
}

TEST_F(JsonLines, ContinuedRunHasEachStepOfANameOnce) {
  {
    JsonLinesTracker tracker({});
    tracker.start(run());
    for (int64_t step = 1; step <= 4; ++step) {
      log_one(tracker, step, {{"loss", 10 + step}, {"other", step}});
    }
    tracker.finish();
  }
  JsonLinesTracker tracker({});
  tracker.start(run(/*continues=*/true));
  log_one(tracker, 3, {{"loss", 23}});
  log_one(tracker, 4, {{"loss", 24}, {"other", 44}});
  tracker.finish();
  EXPECT_THAT(lines_of(read("demo/metrics.jsonl")),
              ElementsAre(R"({"step":1,"time":1700000001.0,"loss":11,"other":1})",
                          R"({"step":2,"time":1700000002.0,"loss":12,"other":2})",
                          R"({"step":3,"time":1700000003.0,"other":3})",
                          R"({"step":3,"time":1700000003.0,"loss":23})",
                          R"({"step":4,"time":1700000004.0,"loss":24,"other":44})"));
}

TEST_F(JsonLines, CheckpointThatIsLoadedAfterTheStartContinuesTheFile) {
  {
    JsonLinesTracker tracker({});
    tracker.start(run());
    for (int64_t step = 1; step <= 3; ++step) log_one(tracker, step, {{"loss", step}});
    tracker.finish();
  }
  JsonLinesTracker tracker({});
  tracker.start(run());
  tracker.store_init_configuration({{"lr", 0.5}});
  tracker.continue_run();
  log_one(tracker, 2, {{"loss", 22}});
  tracker.continue_run();
  log_one(tracker, 2, {{"loss", 32}});
  tracker.finish();
  const auto lines = lines_of(read("demo/metrics.jsonl"));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(json::parse(lines[0])["loss"], 1);
  EXPECT_EQ(json::parse(lines[1])["config"]["lr"], 0.5);
  EXPECT_EQ(json::parse(lines[2])["loss"], 32);
}

TEST_F(JsonLines, LineThatACrashCutOffDoesNotSpoilTheNextOne) {
  write("demo.tmp", "");
  std::filesystem::create_directories(folder_ / "demo");
  write("demo/metrics.jsonl", "{\"step\":1,\"loss\":1}\n{\"step\":2,\"lo");
  JsonLinesTracker tracker({});
  tracker.start(run(/*continues=*/true));
  log_one(tracker, 2, {{"loss", 2}});
  tracker.finish();
  const auto lines = lines_of(read("demo/metrics.jsonl"));
  EXPECT_EQ(json::parse(lines.front())["loss"], 1);
  EXPECT_EQ(json::parse(lines.back())["loss"], 2);
}

TEST_F(JsonLines, PicturesTablesAndHistogramsAreNamedInTheirLines) {
  JsonLinesTracker tracker({});
  tracker.start(run());
  const TrackedImage image{.name = "a/b", .height = 1, .width = 2, .channels = 1, .pixels = {1, 2}};
  EXPECT_TRUE(tracker.log_images(std::span(&image, 1), at_step(3)));
  EXPECT_TRUE(
      tracker.log_table({.name = "t", .columns = {"x"}, .rows = {{1}, {"two"}}}, at_step(3)));
  EXPECT_TRUE(tracker.log_histogram({.name = "h", .count = 2, .limits = {1, 2}, .counts = {0, 2}},
                                    at_step(3)));
  EXPECT_TRUE(tracker.log_figure({.name = "f", .extension = "svg", .bytes = "<svg/>"}, at_step(3)));
  const auto source = write("weights.txt", "w");
  EXPECT_TRUE(tracker.log_artifact({.path = source, .artifact_path = "final/../x"}));
  tracker.finish();
  const auto lines = lines_of(read("demo/metrics.jsonl"));
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(json::parse(lines[0])["images"]["a/b"], "images/a_b_3.png");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "demo/images/a_b_3.png"));
  EXPECT_EQ(json::parse(lines[1])["tables"]["t"]["data"], json::parse(R"([[1],["two"]])"));
  EXPECT_EQ(json::parse(lines[2])["histograms"]["h"]["counts"], json({0.0, 2.0}));
  EXPECT_EQ(read("demo/" + json::parse(lines[3])["figures"]["f"].get<std::string>()), "<svg/>");
  EXPECT_EQ(json::parse(lines[4])["artifact"], "artifacts/final/_../x/weights.txt");
  EXPECT_EQ(read("demo/artifacts/final/_../x/weights.txt"), "w");
}

TEST(PythonNumbers, AreWrittenAsPythonWritesThem) {
  EXPECT_EQ(python_number(2e-5), "2e-05");
  EXPECT_EQ(python_number(0.0001), "0.0001");
  EXPECT_EQ(python_number(1700000000.5), "1700000000.5");
  EXPECT_EQ(python_number(1e16), "1e+16");
  EXPECT_EQ(python_number(1e15), "1000000000000000.0");
  EXPECT_EQ(python_number(-1.5e-7), "-1.5e-07");
  EXPECT_EQ(python_number(std::nan("")), "nan");
}

TEST(YamlDocuments, QuoteWhatWouldNotBeAText) {
  EXPECT_EQ(yaml_document({{"b", "yes"}, {"a", "12"}, {"c", "it's: x"}, {"d", ""}, {"e", "x\ny"}}),
            "a: '12'\nb: 'yes'\nc: 'it''s: x'\nd: ''\ne: \"x\\ny\"\n");
}

}  // namespace
}  // namespace accelerate::tracking
