// Traces of several ranks as one.
#include "trace/trace_merge.h"

#include <accelerate/profiler.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "multiproc/state_folder.h"
#include "support/error_of.h"
#include "trace/clock_offsets.h"
#include "trace/trace_additions.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using trace::ClockOffset;
using trace::RankMeetings;

struct Traces : testing::Test {
  StateFolder folder;

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder / name) << text;
  }
  json read(const std::string& name) const {
    std::ifstream file(folder / name);
    return json::parse(file);
  }
};

json exchange(int number, double begin_us, double end_us, const std::string& name = "backward") {
  return {{"ph", "X"},
          {"cat", trace::kExchangeCategory},
          {"name", name},
          {"pid", 77},
          {"tid", 1'000'000'000},
          {"ts", begin_us},
          {"dur", end_us - begin_us},
          {"args", {{"group", 0}, {"exchange", number}, {"operation", 5}}}};
}

// A rank whose clock is `ahead_us` ahead: exchange i ends at 1000 (i + 1) for all, and began when
// this rank came.
json trace_of(int rank, const std::string& host, double ahead_us, int64_t base_ns = 1'000'000'000) {
  json events = json::array();
  events.push_back({{"ph", "M"},
                    {"name", "process_name"},
                    {"pid", 77},
                    {"tid", 0},
                    {"ts", 0},
                    {"args", {{"name", "train"}}}});
  for (int i = 0; i < 21; ++i) {
    const double jitter = (i * 7 + rank * 3) % 5 * 0.5;
    events.push_back(
        exchange(i, 1000.0 * i + 100 * rank + ahead_us, 1000.0 * (i + 1) + jitter + ahead_us));
  }
  events.push_back({{"ph", "s"},
                    {"cat", "fwdbwd"},
                    {"name", "fwdbwd"},
                    {"id", 9},
                    {"pid", 77},
                    {"tid", 77},
                    {"ts", 500 + ahead_us}});
  return {{"schemaVersion", 1},
          {"distributedInfo", {{"rank", rank}, {"world_size", 3}}},
          {"accelerate", {{"host", host}}},
          {"baseTimeNanoseconds", base_ns},
          {"traceEvents", events}};
}

TEST(ClockOffsets, AreTheMedianDifferenceOfTheEndsOfSharedExchanges) {
  RankMeetings first{.machine = "a"};
  RankMeetings other{.machine = "b"};
  for (int i = 0; i < 11; ++i) {
    first.ends[std::to_string(i)] = 100.0 * i;
    other.ends[std::to_string(i)] = 100.0 * i + 250 + (i == 3 ? 5000 : i % 3);  // one came late
  }
  other.ends["alone"] = 1e9;
  const std::vector<ClockOffset> offsets = trace::clock_offsets({first, other});
  EXPECT_DOUBLE_EQ(offsets[0].us, 0);
  EXPECT_EQ(offsets[0].meetings, 0);
  EXPECT_NEAR(offsets[1].us, 251, 1);
  EXPECT_EQ(offsets[1].meetings, 11);
  EXPECT_LE(offsets[1].deviation_us, 1);
}

TEST(ClockOffsets, RanksOfOneMachineShareAClockAndOthersAreReachedOverIt) {
  RankMeetings first{.machine = "a", .ends = {{"x", 10}}};
  RankMeetings same{.machine = "a", .ends = {{"x", 11}, {"y", 50}}};
  RankMeetings far{.machine = "b", .ends = {{"y", 1050}, {"z", 2000}}};
  RankMeetings farther{.machine = "c", .ends = {{"z", 7000}}};
  RankMeetings alone{.machine = "d", .ends = {{"w", 3}}};
  const auto offsets = trace::clock_offsets({first, same, far, farther, alone});
  EXPECT_DOUBLE_EQ(offsets[1].us, 0);
  EXPECT_DOUBLE_EQ(offsets[2].us, 1000);
  EXPECT_DOUBLE_EQ(offsets[3].us, 6000);
  EXPECT_DOUBLE_EQ(offsets[4].us, 0);
  EXPECT_EQ(offsets[4].meetings, 0);
}

TEST_F(Traces, AnInjectedClockOffsetIsTakenAway) {
  const std::vector<double> ahead{0, 123'456.5, -9'876.25};
  for (int rank = 0; rank < 3; ++rank) {
    // The last one has another base for its times, too.
    const json trace = trace_of(rank, "host" + std::to_string(rank), ahead[rank],
                                rank == 2 ? 4'000'000'000 : 1'000'000'000);
    write(trace::trace_name(rank), trace.dump(1));
  }
  const TraceMerge merge = merge_traces(folder.path());
  EXPECT_EQ(merge.path, folder / "profile_merged.json");
  ASSERT_EQ(merge.ranks.size(), 3U);
  EXPECT_NEAR(merge.ranks[1].offset_us, ahead[1], 2);
  EXPECT_NEAR(merge.ranks[2].offset_us, ahead[2] + 3e6, 2);
  EXPECT_EQ(merge.ranks[1].meetings, 21);
  EXPECT_EQ(merge.ranks[1].host, "host1");
  EXPECT_LE(merge.ranks[1].deviation_us, 2);
  const json merged = read("profile_merged.json");
  std::map<int, std::vector<double>> ends;
  for (const json& event : merged["traceEvents"]) {
    if (event.value("cat", "") != trace::kExchangeCategory) continue;
    ends[event["args"]["exchange"]].push_back(event["ts"].get<double>() +
                                              event["dur"].get<double>());
  }
  EXPECT_EQ(ends.size(), 21U);
  for (const auto& [number, of_ranks] : ends) {
    ASSERT_EQ(of_ranks.size(), 3U);
    for (const double end : of_ranks) EXPECT_NEAR(end, of_ranks[0], 4) << number;
  }
  EXPECT_EQ(merge.events, static_cast<int64_t>(merged["traceEvents"].size()));
}

TEST_F(Traces, EachRankIsAProcessAndFlowsStayApart) {
  for (int rank = 0; rank < 2; ++rank) {
    write(trace::trace_name(rank), trace_of(rank, "one", 0).dump());
  }
  merge_traces(folder.path(), folder / "all.json");
  std::map<std::string, int> processes;
  std::vector<int64_t> flows;
  const json all = read("all.json");
  for (const json& event : all["traceEvents"]) {
    if (event["name"] == "process_name") processes[event["args"]["name"]] = event["pid"];
    if (event["ph"] == "s") flows.push_back(event["id"]);
  }
  EXPECT_EQ(processes.size(), 2U);
  EXPECT_NE(processes.at("rank 0: train"), processes.at("rank 1: train"));
  ASSERT_EQ(flows.size(), 2U);
  EXPECT_NE(flows[0], flows[1]);
}

TEST_F(Traces, BroadcastsThatARankLeavesEarlyDoNotCount) {
  json early = trace_of(0, "a", 0);
  json late = trace_of(1, "b", 500);
  for (int i = 100; i < 200; ++i) {
    early["traceEvents"].push_back(exchange(i, 1000 * i, 1000 * i + 1, "broadcast from 0"));
    late["traceEvents"].push_back(exchange(i, 1000 * i, 1000 * i + 700, "broadcast from 0"));
  }
  write("profile_0.json", early.dump());
  write("profile_1.json", late.dump());
  EXPECT_NEAR(merge_traces(folder.path()).ranks[1].offset_us, 500, 3);
}

// Groups other than that of all ranks have other numbers on other ranks.
TEST_F(Traces, ExchangesOfOtherGroupsDoNotCount) {
  for (int rank = 0; rank < 2; ++rank) {
    json own = trace_of(rank, "host" + std::to_string(rank), 500.0 * rank);
    for (json& event : own["traceEvents"]) {
      if (event["ph"] == "X") event["args"]["group"] = 1;
    }
    write(trace::trace_name(rank), own.dump());
  }
  const TraceMerge merge = merge_traces(folder.path());
  EXPECT_EQ(merge.ranks[1].meetings, 0);
  EXPECT_DOUBLE_EQ(merge.ranks[1].offset_us, 0);
}

TEST_F(Traces, TracesOfAnotherNumberOfRanksAreRefused) {
  for (int rank = 0; rank < 3; ++rank) {
    json own = trace_of(rank, "one", 0);
    if (rank < 2) own["distributedInfo"]["world_size"] = 2;
    write(trace::trace_name(rank), own.dump());
  }
  const ProfileError error = error_of<ProfileError>([&] { merge_traces(folder.path()); });
  EXPECT_THAT(error.message(), HasSubstr("profile_2.json is from a run on another number of ranks "
                                         "than profile_0.json: 3, not 2"));
  EXPECT_THAT(error.hint(), HasSubstr("remove the traces of earlier runs"));
  std::filesystem::remove(folder / "profile_2.json");
  EXPECT_EQ(merge_traces(folder.path()).ranks.size(), 2U);
}

TEST_F(Traces, KernelsOfNcclAlignTracesOfGpus) {
  for (int rank = 0; rank < 2; ++rank) {
    json events = json::array();
    for (int i = 0; i < 9; ++i) {
      events.push_back({{"ph", "X"},
                        {"cat", "kernel"},
                        {"name", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"},
                        {"pid", 0},
                        {"tid", 20},
                        {"ts", 100.0 * i + rank * 40},
                        {"dur", 20},
                        {"args",
                         {{"Collective name", "allreduce"},
                          {"Process Group Name", "0"},
                          {"In msg nelems", 64}}}});
    }
    write(trace::trace_name(rank), json{{"distributedInfo", {{"rank", rank}}},
                                        {"accelerate", {{"host", std::to_string(rank)}}},
                                        {"traceEvents", events}}
                                       .dump());
  }
  const TraceMerge merge = merge_traces(folder.path());
  EXPECT_DOUBLE_EQ(merge.ranks[1].offset_us, 40);
  EXPECT_EQ(merge.ranks[1].meetings, 9);
}

TEST_F(Traces, WhatIsNotATraceIsNamed) {
  EXPECT_THAT(error_text<ProfileError>([&] { merge_traces(folder.path()); }),
              HasSubstr("there are no traces"));
  EXPECT_THAT(error_text<ProfileError>([&] { merge_traces(folder / "nowhere"); }),
              HasSubstr("cannot be read"));
  const auto refused = [&](const std::string& text) {
    write("profile_0.json", text);
    const ProfileError error = error_of<ProfileError>([&] { merge_traces(folder.path()); });
    EXPECT_EQ(error.where(), (folder / "profile_0.json").string());
    EXPECT_FALSE(std::filesystem::exists(folder / "profile_merged.json"));
    return error.message();
  };
  EXPECT_THAT(refused("[1, 2]"), HasSubstr("not an object"));
  EXPECT_THAT(refused("{\"a\": 1}"), HasSubstr("no list of events"));
  EXPECT_THAT(refused("{\"traceEvents\": [{\"ph\": \"X\""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused("{\"traceEvents\": [7]}"), HasSubstr("an event is not an object"));
  EXPECT_THAT(refused("{\"traceEvents\": [{\"a\": " + std::string(100, '[') +
                      std::string(100, ']') + "}]}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(refused("nonsense"), HasSubstr("not valid JSON"));
  EXPECT_FALSE(refused("").empty());
}

TEST_F(Traces, TwoTracesOfOneRankAreRefused) {
  write("profile_0.json", trace_of(0, "a", 0).dump());
  write("profile_1.json", trace_of(0, "a", 0).dump());
  EXPECT_THAT(error_text<ProfileError>([&] { merge_traces(folder.path()); }),
              HasSubstr("two traces of rank 0: profile_0.json and profile_1.json"));
}

// Kineto writes its base behind the events, and may have none.
TEST_F(Traces, AdditionsStandBeforeTheEventsOfTheTrace) {
  for (const std::string& own : {std::string(R"({"ph":"X","name":"own"})"), std::string()}) {
    write("from.json", R"({"schemaVersion": 1, "a": "\"traceEvents\": [", "traceEvents" : [)" +
                           own + R"(], "baseTimeNanoseconds": 5000})");
    int64_t seen_base = 0;
    trace::write_with_additions(folder / "from.json", folder / "to.json", [&](int64_t base_ns) {
      seen_base = base_ns;
      trace::TraceAdditions additions(12);
      additions.add_annotation({.name = "a \"span\"", .thread = 3, .begin_us = 1.5, .end_us = 4});
      additions.add_counter("memory cpu", 2, -64);
      additions.name_thread(4, "exchange", 1);
      return additions.events();
    });
    EXPECT_EQ(seen_base, 5000);
    const json events = read("to.json")["traceEvents"];
    ASSERT_EQ(events.size(), own.empty() ? 4U : 5U);
    EXPECT_EQ(events[0]["name"], "a \"span\"");
    EXPECT_EQ(events[0]["cat"], "user_annotation");
    EXPECT_DOUBLE_EQ(events[0]["dur"], 2.5);
    EXPECT_EQ(events[1]["args"]["bytes"], -64);
    if (!own.empty()) EXPECT_EQ(events[4]["name"], "own");
  }
  write("no.json", "{}");
  EXPECT_THAT(error_text<ProfileError>([&] {
                trace::write_with_additions(folder / "no.json", folder / "to.json",
                                            [](int64_t) { return std::vector<std::string>(); });
              }),
              HasSubstr("without a list of events"));
}

TEST_F(Traces, ATraceThatWasCutOffIsNotWritten) {
  const std::string whole =
      R"({"baseTimeNanoseconds": 5000, "traceEvents": [{"ph": "X", "name": "own"}], "end": 1})";
  const auto copy = [&](const std::string& text) {
    write("from.json", text);
    trace::write_with_additions(folder / "from.json", folder / "to.json",
                                [](int64_t) { return std::vector<std::string>(); });
  };
  for (const size_t length : {whole.size() - 1, whole.find("own") + 2, whole.find("[{") + 1}) {
    const ProfileError error = error_of<ProfileError>([&] { copy(whole.substr(0, length)); });
    EXPECT_THAT(error.message(), HasSubstr("only a part of its trace"));
    EXPECT_THAT(error.hint(), HasSubstr("TMPDIR"));
    EXPECT_FALSE(std::filesystem::exists(folder / "to.json"));
  }
  copy(whole + "\n");
  EXPECT_TRUE(std::filesystem::exists(folder / "to.json"));
}

}  // namespace
}  // namespace accelerate::test
