// What a profile records, and when.
#include <accelerate/accelerate.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "multiproc/profiled_loop.h"
#include "support/error_of.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int64_t> steps_recorded(const ProfileTrace& trace) {
  for (const OperatorTotals& row : trace.operators()) {
    if (row.name == "ProfilerStep*") return {trace.step_num(), row.calls};
  }
  return {trace.step_num(), 0};
}

TEST_F(Profiles, TracesAreReadyWhenTheScheduleSays) {
  run(1, [](const Rank&) {
    Loop loop;
    std::vector<int64_t> ready;
    auto profile = loop.accelerator.profile(
        {.schedule = {{.wait = 1, .warmup = 1, .active = 2, .repeat = 2, .skip_first = 1}},
         .on_trace_ready = [&](const ProfileTrace& trace) {
           for (const int64_t number : steps_recorded(trace)) ready.push_back(number);
         }});
    EXPECT_EQ(profile.action(), ProfileAction::kNone);
    EXPECT_FALSE(profile.trace());
    loop.train(profile, 4);
    EXPECT_EQ(profile.action(), ProfileAction::kRecordAndSave);
    EXPECT_THAT(ready, IsEmpty());
    loop.train(profile, 8);
    EXPECT_EQ(profile.step_num(), 12);
    EXPECT_THAT(ready, ElementsAre(5, 2, 9, 2));  // two steps each, before steps 5 and 9
    profile.end();
    EXPECT_EQ(ready.size(), 4U);
    ASSERT_TRUE(profile.trace());
    EXPECT_EQ(profile.trace()->step_num(), 9);
    EXPECT_EQ(profile.step_times().steps, 11);  // without the first
  });
}

TEST_F(Profiles, WithoutAScheduleAllIsOneTraceThatEndsWithTheProfile) {
  run(1, [](const Rank&) {
    Loop loop;
    int ready = 0;
    auto profile =
        loop.accelerator.profile({.on_trace_ready = [&](const ProfileTrace&) { ++ready; }});
    loop.train(profile, 3);
    EXPECT_EQ(ready, 0);
    profile.end();
    profile.end();  // does nothing
    EXPECT_EQ(ready, 1);
    std::map<std::string, int64_t> calls;
    for (const OperatorTotals& row : profile.trace()->operators()) calls[row.name] = row.calls;
    EXPECT_EQ(calls["aten::addmm"], 3);  // a layer with a bias and one without in each of them
    EXPECT_EQ(calls["aten::relu"], 3);
    EXPECT_THAT(error_text<UsageError>([&] { profile.step(); }), HasSubstr("has ended"));
  });
}

TEST_F(Profiles, AWindowThatTheLoopDoesNotFinishEndsWithTheProfile) {
  run(1, [](const Rank&) {
    Loop loop;
    std::vector<int64_t> ready;
    const auto note = [&](const ProfileTrace& trace) { ready = steps_recorded(trace); };
    {
      auto profile = loop.accelerator.profile(
          {.schedule = {{.warmup = 1, .active = 10}}, .on_trace_ready = note});
      loop.train(profile, 3);
    }
    EXPECT_THAT(ready, ElementsAre(3, 3));
    ready.clear();
    {  // only warmed up: nothing to tell of, and the next profile works
      auto profile = loop.accelerator.profile(
          {.schedule = {{.warmup = 2, .active = 1}}, .on_trace_ready = note});
      loop.train(profile, 1);
    }
    EXPECT_THAT(ready, IsEmpty());
    auto profile = loop.accelerator.profile({.on_trace_ready = note});
    loop.train(profile, 1);
    profile.end();
    EXPECT_THAT(ready, ElementsAre(1, 2));
  });
}

TEST_F(Profiles, SpansOfTheStepStandInTheTraceAsOftenAsThereWereSteps) {
  run(1, [&](const Rank&) {
    Loop loop;
    const auto data = torch::ones({12, 4});
    const auto loader =
        loop.accelerator.prepare(data_loader(TensorDataset(data, data), {.batch_size = 4}));
    auto profile = loop.accelerator.profile({.output_trace_dir = folder / "new/traces"});
    for (const auto& batch : loader) {
      loop.accelerator.backward(loop.model(batch.data).square().mean());
      loop.optimizer.step();
      loop.optimizer.zero_grad();
      profile.step();
    }
    loop.accelerator.save_state(folder / "state");
    profile.end();
    const json trace = trace_at("new/traces/profile_0.json");
    EXPECT_EQ(trace["distributedInfo"]["rank"], 0);
    EXPECT_EQ(trace["distributedInfo"]["world_size"], 1);
    EXPECT_FALSE(trace["accelerate"]["host"].get<std::string>().empty());
    const auto spans = spans_in(trace, "user_annotation");
    EXPECT_EQ(named(spans, "forward").size(), 3U);
    EXPECT_EQ(named(spans, "backward").size(), 3U);
    EXPECT_EQ(named(spans, "optimizer step").size(), 3U);
    EXPECT_EQ(named(spans, "loader: next batch").size(), 4U);  // and the end of the pass
    EXPECT_EQ(named(spans, "save " + (folder / "state").string()).size(), 1U);
    const auto steps = named(spans, "ProfilerStep#1");
    ASSERT_EQ(steps.size(), 1U);
    // What the loop did in its second step lies inside of it, on its row, and operators inside.
    const auto forward = named(spans, "forward")[1];
    const auto backward = named(spans, "backward")[1];
    EXPECT_TRUE(steps[0].holds(forward));
    EXPECT_TRUE(steps[0].holds(backward));
    EXPECT_LE(forward.end, backward.begin);
    EXPECT_EQ(forward.thread, steps[0].thread);
    const auto products = named(spans_in(trace, "cpu_op"), "aten::addmm");
    EXPECT_EQ(std::count_if(products.begin(), products.end(),
                            [&](const SpanTimes& span) {
                              return span.thread == forward.thread && forward.holds(span);
                            }),
              1);
  });
}

TEST_F(Profiles, OperatorsHaveTimesShapesFlopsAndMemory) {
  run(1, [](const Rank&) {
    Loop loop;
    auto profile = loop.accelerator.profile(
        {.activities = {"cpu"}, .record_shapes = true, .profile_memory = true, .with_flops = true});
    loop.train(profile, 2);
    profile.end();
    const ProfileTrace trace = *profile.trace();
    std::map<std::string, OperatorTotals> rows;
    double self_us = 0;
    for (const OperatorTotals& row : trace.operators({.group_by_input_shape = true})) {
      rows[row.name + row.input_shapes] = row;
      self_us += row.self_cpu_us;
      EXPECT_LE(row.self_cpu_us, row.cpu_us + 1e-3) << row.name;
    }
    const OperatorTotals product = rows["aten::addmm[[8], [16, 4], [4, 8], [], []]"];
    EXPECT_EQ(product.calls, 2);
    EXPECT_GT(product.cpu_us, 0);
    EXPECT_EQ(product.cpu_bytes, 2 * 16 * 8 * 4);  // of its results
    EXPECT_EQ(product.device_us + product.self_device_us, 0);
    EXPECT_EQ(product.self_cpu_bytes, product.cpu_bytes);
    EXPECT_EQ(product.device_bytes + product.self_device_bytes, 0);
    uint64_t flops = 0;
    for (const auto& [key, row] : rows) flops += row.name == "aten::addmm" ? row.flops : 0;
    EXPECT_EQ(flops, 2U * (2 * 16 * 4 * 8));  // of two steps
    EXPECT_GT(self_us, 0);

    EXPECT_THAT(trace.operator_table({.sort_by = "count", .row_limit = 3}),
                testing::AllOf(HasSubstr("self CPU"), HasSubstr(" more\n"),
                               HasSubstr("self CPU time in all: ")));
    const auto by_count = trace.operators({.sort_by = "count"});
    EXPECT_GE(by_count[0].calls, by_count[1].calls);
    EXPECT_NO_THROW((void)trace.operators({.sort_by = "self_cuda_time_total"}));
    EXPECT_THAT(error_text<UsageError>([&] { (void)trace.operators({.sort_by = "cpu_time"}); }),
                HasSubstr("cannot be sorted by"));
    EXPECT_THAT(trace.modules(), IsEmpty());
  });
}

TEST_F(Profiles, ModulesGetTheOperatorsThatReadTheirParametersAndWhatComesBack) {
  run(1, [](const Rank&) {
    Loop loop;
    auto profile =
        loop.accelerator.profile({.with_stack = true, .with_flops = true, .with_modules = true});
    loop.train(profile, 2);
    { (void)loop.net->first(torch::ones({1, 4})); }  // past the prepared model
    profile.end();
    std::map<std::string, ModuleTotals> modules;
    std::vector<std::string> names;
    for (const ModuleTotals& module : profile.trace()->modules()) {
      modules[module.name] = module;
      names.push_back(module.name);
    }
    EXPECT_THAT(names, ElementsAre("", "first", "second"));
    // The weight is turned, and what comes of it multiplied, in each of two steps. Without a bias
    // the product reads no parameter, but memory of one.
    EXPECT_EQ(modules["first"].calls, 4);
    EXPECT_EQ(modules["second"].calls, 4);
    EXPECT_EQ(modules[""].calls, 8);
    EXPECT_EQ(modules["first"].flops, 2U * 2 * 16 * 4 * 8);
    EXPECT_EQ(modules["second"].flops, 2U * 2 * 16 * 8 * 2);
    for (const std::string name : {"first", "second"}) {
      EXPECT_GT(modules[name].forward_us, 0) << name;
      EXPECT_GT(modules[name].backward_us, 0) << name;
      EXPECT_EQ(modules[name].forward_device_us + modules[name].backward_device_us, 0);
    }
    EXPECT_NEAR(modules[""].backward_us,
                modules["first"].backward_us + modules["second"].backward_us, 1e-6);
    EXPECT_THAT(profile.trace()->module_table(),
                testing::AllOf(HasSubstr("(all)"), HasSubstr("forward FLOPs")));
  });
}

// Autocast calls an operator again with its inputs in another type.
TEST_F(Profiles, WorkUnderAutocastIsCountedOnce) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_processor();
    options.mixed_precision = "bf16";
    Loop loop(options);
    auto profile = loop.accelerator.profile({.with_flops = true, .with_modules = true});
    loop.train(profile, 2);
    profile.end();
    for (const bool by_shape : {false, true}) {
      uint64_t flops = 0;
      for (const auto& row : profile.trace()->operators({.group_by_input_shape = by_shape})) {
        if (row.name == "aten::addmm") flops += row.flops;
      }
      EXPECT_EQ(flops, 2U * (2 * 16 * 4 * 8));
    }
    for (const ModuleTotals& module : profile.trace()->modules()) {
      if (module.name == "first") EXPECT_EQ(module.flops, 2U * 2 * 16 * 4 * 8);
    }
  });
}

// A model that calls another prepared one between its own layers.
struct OuterLine : torch::nn::Module {
  explicit OuterLine(PreparedModel<Line> inner)
      : first(register_module("first", torch::nn::Linear(4, 4))),
        last(register_module("last", torch::nn::Linear(2, 2))),
        inner(std::move(inner)) {}
  torch::Tensor forward(const torch::Tensor& x) { return last(inner(first(x))); }
  torch::nn::Linear first, last;
  PreparedModel<Line> inner;
};

TEST_F(Profiles, OperatorsAfterAnInnerModelBelongToTheirModules) {
  run(1, [](const Rank&) {
    Loop loop;
    auto outer = loop.accelerator.prepare(std::make_shared<OuterLine>(loop.model));
    auto profile = loop.accelerator.profile({.with_modules = true});
    loop.accelerator.backward(outer(torch::ones({16, 4})).square().mean());
    profile.end();
    std::vector<std::string> names;
    for (const ModuleTotals& module : profile.trace()->modules()) names.push_back(module.name);
    EXPECT_THAT(names, testing::IsSupersetOf({"model_0.first", "model_1.first", "model_1.last"}));
  });
}

TEST_F(Profiles, MemoryOfAnEarlierRecordingDoesNotCount) {
  run(1, [](const Rank&) {
    Accelerator accelerator(on_processor());
    std::vector<torch::Tensor> kept;
    for (int i = 0; i < 2; ++i) {
      auto profile = accelerator.profile({.profile_memory = true});
      kept.push_back(torch::empty({1 << 18}));
      profile.end();
      ASSERT_EQ(profile.trace()->memory().size(), 1U);
      EXPECT_EQ(profile.trace()->memory()[0].peak_bytes, 1 << 20);
      EXPECT_EQ(profile.trace()->memory()[0].left_bytes, 1 << 20);
    }
  });
}

TEST_F(Profiles, MemoryHasItsPeakAndALineForEachAllocation) {
  run(1, [&](const Rank&) {
    Loop loop;
    auto profile =
        loop.accelerator.profile({.profile_memory = true, .output_trace_dir = folder.path()});
    torch::Tensor kept;
    {
      const torch::Tensor large = torch::empty({1 << 20});
      kept = torch::zeros({256});
    }
    profile.end();
    const std::vector<MemoryPeak> peaks = profile.trace()->memory();
    ASSERT_EQ(peaks.size(), 1U);
    EXPECT_EQ(peaks[0].device, "cpu");
    EXPECT_EQ(peaks[0].peak_bytes, (1 << 22) + 1024);
    EXPECT_EQ(peaks[0].left_bytes, 1024);
    EXPECT_EQ(peaks[0].allocations, 2);
    EXPECT_EQ(peaks[0].allocated_bytes, (1 << 22) + 1024);
    EXPECT_EQ(peaks[0].peak_operator, "aten::empty");
    EXPECT_GT(peaks[0].peak_us, 0);
    EXPECT_THAT(profile.trace()->memory_table(), HasSubstr("4.0 MiB"));
    std::ifstream file(folder / "memory_0.csv");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_EQ(lines[0], "time_us,device,bytes,bytes_in_use,operator");
    EXPECT_THAT(lines[1], HasSubstr(",cpu,4194304,4194304,aten::empty"));
    EXPECT_THAT(lines[3], HasSubstr(",cpu,-4194304,1024,"));
    // The curve of it in the trace.
    std::vector<int64_t> curve;
    const json trace = trace_at("profile_0.json");
    for (const json& event : trace["traceEvents"]) {
      if (event["ph"] == "C") curve.push_back(event["args"]["bytes"]);
    }
    EXPECT_THAT(curve, ElementsAre(4194304, 4195328, 1024));
    profile.trace()->export_memory_timeline(folder / "again.csv");
    EXPECT_EQ(std::filesystem::file_size(folder / "again.csv"),
              std::filesystem::file_size(folder / "memory_0.csv"));
  });
}

}  // namespace
}  // namespace accelerate::test
