// What profiles write, what ranks agree on, and what goes wrong.
#include <accelerate/accelerate.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "multiproc/profiled_loop.h"
#include "support/error_of.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST_F(Profiles, RanksWriteOneTraceEachAndTheseBecomeOne) {
  run(2, [&](const Rank& rank) {
    AcceleratorOptions options = on_processor();
    options.profile.output_trace_dir = folder.path();
    Loop loop(options);
    auto profile = loop.accelerator.profile();
    loop.train(profile, 4);
    profile.end();
    // The files of all ranks are there on all of them.
    for (int other = 0; other < 2; ++other) {
      const json trace = trace_at("profile_" + std::to_string(other) + ".json");
      EXPECT_EQ(trace["distributedInfo"]["rank"], other);
      EXPECT_EQ(trace["distributedInfo"]["world_size"], 2);
      EXPECT_GE(spans_in(trace, "accelerate_exchange").size(), 4U);
    }
    const std::vector<StepTimes> times = profile.step_times_of_all_ranks();
    ASSERT_EQ(times.size(), 2U);
    EXPECT_EQ(times[1].rank, 1);
    EXPECT_EQ(times[1].steps, 4);
    EXPECT_EQ(times[0].parts.size(), 8U);
    EXPECT_DOUBLE_EQ(times[rank.rank].mean_us, profile.step_times().mean_us);
    EXPECT_THAT(step_table(times), testing::AllOf(HasSubstr("rank 1"), HasSubstr("exchange")));
    EXPECT_THAT(profile.step_table(), HasSubstr("backward"));
    loop.accelerator.wait_for_everyone();
    if (!loop.accelerator.is_main_process()) return;
    const TraceMerge merge = merge_traces(folder.path());
    ASSERT_EQ(merge.ranks.size(), 2U);
    EXPECT_DOUBLE_EQ(merge.ranks[1].offset_us, 0);  // one machine, one clock
    const json merged = json::parse(std::ifstream(merge.path));
    EXPECT_EQ(named(spans_in(merged, "user_annotation"), "backward").size(), 8U);
  });
}

TEST_F(Profiles, AFolderThatOneRankCannotMakeIsAnErrorOnAll) {
  run(2, [&](const Rank& rank) {
    Loop loop;
    const std::filesystem::path file = folder / ("file" + std::to_string(rank.rank));
    if (rank.rank == 1) std::ofstream(file) << "in the way";
    const auto begin = [&] {
      (void)loop.accelerator.profile({.output_trace_dir = file / "traces"});
    };
    const std::string text = error_text<ProfileError>(begin);
    EXPECT_THAT(text, HasSubstr("traces cannot be written"));
    if (rank.rank == 0) EXPECT_THAT(text, HasSubstr("on rank 1"));
    // Nothing is left behind, on either rank.
    auto profile = loop.accelerator.profile({.output_trace_dir = folder / "traces"});
    loop.train(profile, 1);
    profile.end();
    EXPECT_TRUE(std::filesystem::exists(folder / "traces/profile_1.json"));
  });
}

TEST_F(Profiles, AFolderThatIsGoneAtTheEndIsAnErrorOnAll) {
  run(2, [&](const Rank& rank) {
    Loop loop;
    const std::filesystem::path own = folder / ("of" + std::to_string(rank.rank));
    auto profile = loop.accelerator.profile({.output_trace_dir = own});
    loop.train(profile, 1);
    if (rank.rank == 0) std::filesystem::remove_all(own);
    EXPECT_THAT(error_text<ProfileError>([&] { profile.end(); }), HasSubstr("cannot be written"));
    loop.accelerator.wait_for_everyone();
  });
}

TEST_F(Profiles, OnlyOneAtATimeInAProcess) {
  run(1, [](const Rank&) {
    Loop loop;
    Accelerator other(on_processor());
    auto profile = loop.accelerator.profile({.schedule = {{.wait = 5}}});
    EXPECT_THAT(error_text<UsageError>([&] { (void)other.profile({}); }),
                HasSubstr("another profile is open"));
    Profile moved = std::move(profile);
    EXPECT_EQ(moved.step_num(), 0);
    // NOLINTNEXTLINE(bugprone-use-after-move): that is what is tested
    EXPECT_THAT(error_text<UsageError>([&] { profile.step(); }), HasSubstr("moved from"));
    moved.end();
    EXPECT_NO_THROW((void)other.profile({}));
  });
}

TEST_F(Profiles, OptionsThatCannotBeAreRefused) {
  run(1, [](const Rank&) {
    Loop loop;
    EXPECT_THAT(error_text<UsageError>(
                    [&] { (void)loop.accelerator.profile({.schedule = {{.active = 0}}}); }),
                HasSubstr("active is 0"));
    EXPECT_THAT(error_text<UsageError>([&] {
                  (void)loop.accelerator.profile({.activities = {"cpu", "cuda"}});
                }),
                HasSubstr("activities of cuda cannot be recorded: this accelerator works on cpu"));
    EXPECT_NO_THROW((void)loop.accelerator.profile({}));  // nothing was left open
  });
}

TEST_F(Profiles, ModelsInShardsAreProfiledWithoutShapes) {
  run(2, [](const Rank&) {
    AcceleratorOptions options = on_processor();
    options.strategy = ZeroOptions{.stage = 3};
    Loop loop(options);
    EXPECT_THAT(
        error_text<UsageError>([&] { (void)loop.accelerator.profile({.with_modules = true}); }),
        HasSubstr("parameters are in shards"));
    auto profile = loop.accelerator.profile({.profile_memory = true});
    loop.train(profile, 2);
    profile.end();
    EXPECT_EQ(profile.step_times().steps, 2);
  });
}

TEST_F(Profiles, AnExceptionOnItsWayLeavesTheTraceOfEachRankAndCallsNobody) {
  run(2, [&](const Rank& rank) {
    Loop loop;
    int ready = 0;
    const auto train = [&] {
      auto profile =
          loop.accelerator.profile({.on_trace_ready = [&](const ProfileTrace&) { ++ready; },
                                    .output_trace_dir = folder.path()});
      loop.train(profile, 2);
      throw std::runtime_error("the data are broken");
    };
    EXPECT_THROW(train(), std::runtime_error);
    EXPECT_EQ(ready, 0);
    const json trace = trace_at("profile_" + std::to_string(rank.rank) + ".json");
    EXPECT_EQ(named(spans_in(trace, "user_annotation"), "forward").size(), 2U);
    auto next = loop.accelerator.profile({});
    next.end();
    EXPECT_TRUE(next.trace());
  });
}

TEST_F(Profiles, WhatOnTraceReadyThrowsIsPassedOnAndTheTraceIsKept) {
  run(1, [](const Rank&) {
    Loop loop;
    int calls = 0;
    auto profile = loop.accelerator.profile(
        {.schedule = {{.active = 1}}, .on_trace_ready = [&](const ProfileTrace&) {
           if (++calls == 1) throw std::runtime_error("no room");
         }});
    EXPECT_THROW(loop.train(profile, 1), std::runtime_error);
    ASSERT_TRUE(profile.trace());
    EXPECT_EQ(profile.trace()->step_num(), 1);
    loop.train(profile, 3);
    profile.end();
    EXPECT_GE(calls, 2);
  });
}

TEST_F(Profiles, FilesAreWrittenWhateverOnTraceReadyThrowsAtTheEnd) {
  run(2, [&](const Rank& rank) {
    Loop loop;
    auto profile = loop.accelerator.profile({.on_trace_ready =
                                                 [&](const ProfileTrace&) {
                                                   if (rank.rank == 1)
                                                     throw std::runtime_error("no room");
                                                 },
                                             .output_trace_dir = folder.path()});
    loop.train(profile, 1);
    EXPECT_ANY_THROW(profile.end());
    EXPECT_FALSE(trace_at("profile_" + std::to_string(rank.rank) + ".json")["traceEvents"].empty());
    EXPECT_NO_THROW((void)loop.accelerator.profile({}));
  });
}

TEST_F(Profiles, AnotherThreadIsRefusedAndTheProfileGoesOn) {
  run(2, [&](const Rank& rank) {
    Loop loop;
    auto profile = loop.accelerator.profile({.output_trace_dir = folder.path()});
    const auto refused_by_another = [&](const std::function<void()>& call) {
      std::thread([&] {
        EXPECT_THAT(error_text<UsageError>(call), HasSubstr("another thread"));
      }).join();
    };
    refused_by_another([&] { profile.step(); });
    if (rank.rank == 0) {
      refused_by_another([&] { profile.end(); });
    } else {
      EXPECT_THAT(error_text<UsageError>([&] { profile.end(); }), HasSubstr("another thread"));
    }
    loop.train(profile, 1);
    profile.end();
    EXPECT_EQ(profile.step_num(), 1);
    EXPECT_TRUE(std::filesystem::exists(folder / "profile_0.json"));
  });
}

TEST_F(Profiles, AModelInShardsIsNotPreparedWhileShapesAreRecorded) {
  run(2, [](const Rank&) {
    AcceleratorOptions options = on_processor();
    options.strategy = ZeroOptions{.stage = 3};
    Accelerator accelerator(options);
    auto profile = accelerator.profile({.record_shapes = true});
    EXPECT_THAT(
        error_text<UsageError>([&] { (void)accelerator.prepare(std::make_shared<Line>()); }),
        HasSubstr("parameters are in shards"));
    profile.end();
    EXPECT_NO_THROW((void)accelerator.prepare(std::make_shared<Line>()));
  });
}

TEST_F(Profiles, AProfileThatOutlivesItsAcceleratorNamesNoModules) {
  run(1, [](const Rank&) {
    std::optional<Profile> profile;
    {
      Loop loop;
      profile.emplace(loop.accelerator.profile({.with_modules = true}));
      loop.train(*profile, 1);
    }
    profile->end();
    EXPECT_TRUE(profile->trace()->modules().empty());
    EXPECT_FALSE(profile->trace()->operators().empty());
  });
}

TEST_F(Profiles, TracesOutliveProfileAndAcceleratorAndCanBeWrittenTwice) {
  run(1, [&](const Rank&) {
    std::optional<ProfileTrace> trace;
    {
      Loop loop;
      auto profile = loop.accelerator.profile({});
      loop.train(profile, 1);
      profile.end();
      trace = profile.trace();
    }
    trace->export_chrome_trace(folder / "a.json");
    trace->export_chrome_trace(folder / "b.json");
    EXPECT_EQ(trace_at("a.json")["traceEvents"].size(), trace_at("b.json")["traceEvents"].size());
    EXPECT_THAT(
        error_text<ProfileError>([&] { trace->export_chrome_trace(folder / "nowhere/c.json"); }),
        HasSubstr("cannot be written"));
  });
}

}  // namespace
}  // namespace accelerate::test
