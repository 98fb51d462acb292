// Steps that cannot be recorded run as they are. What is recorded is tested on a GPU.
#include <map>
#include <optional>

#include "multiproc/accumulation.h"

namespace accelerate::test {
namespace {

using Tensors = StepCapture::Tensors;

struct CaptureOnCpu : Ranks {};

TEST_F(CaptureOnCpu, RunsTheStepAndOpensItsWindows) {
  run(2, [](const Rank& rank) {
    AcceleratorOptions options = accumulating({.steps = 3});
    options.cpu = true;
    const auto trained = [&](bool captured) {
      Accelerator accelerator(options);
      auto net = fresh_net();
      net->to(at::kCPU);
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      int calls = 0;
      const auto step = [&, &model = model, &optimizer = optimizer](const Tensors& in) -> Tensors {
        ++calls;
        const at::Tensor loss = loss_of(model(in[0]), in[1]);
        accelerator.backward(loss);
        optimizer.step();
        optimizer.zero_grad();
        return {loss.detach()};
      };
      auto replayed = accelerator.capture(step);
      EXPECT_EQ(replayed.fallback_reason(), "there is no GPU");
      for (int i = 0; i < 6; ++i) {
        const StepData data = host_data_of_step(i, 2 * kRows);
        const Tensors batch{rows_of(data.input, rank.rank), rows_of(data.target, rank.rank)};
        if (captured) {
          EXPECT_EQ(replayed(batch).size(), 1U);
        } else {
          const auto micro_batch = accelerator.accumulate(model);
          step(batch);
        }
      }
      EXPECT_EQ(calls, 6);
      EXPECT_EQ(optimizer.step_count(), 2);
      EXPECT_EQ(replayed.replays(), 0);
      return flat(net->parameters());
    };
    EXPECT_EQ(trained(true), trained(false));
  });
}

struct Text {
  at::Tensor ids{};
  std::map<std::string, at::Tensor> more{};
  std::vector<std::string> names{};
  int64_t number = 0;
  ACCELERATE_FIELDS(ids, more, names, number)
};

TEST_F(CaptureOnCpu, TakesAnyNestedBatchAndGivesAnyNestedResult) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.cpu = true;
    Accelerator accelerator(options);
    const auto step = [](const Text& text) {
      return std::pair(Text{.ids = text.ids + text.more.at("more"),
                            .names = text.names,
                            .number = text.number + 1},
                       std::optional<at::Tensor>());
    };
    auto captured = accelerator.capture(step);
    static_assert(std::is_same_v<decltype(captured),
                                 CapturedStep<Text, std::pair<Text, std::optional<at::Tensor>>>>);
    const auto [result, nothing] = captured(Text{.ids = torch::full({2}, 3),
                                                 .more = {{"more", torch::full({2}, 4)}},
                                                 .names = {"a", "b"},
                                                 .number = 5});
    EXPECT_TRUE(result.ids.equal(torch::full({2}, 7)));
    EXPECT_EQ(result.names, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(result.number, 6);
    EXPECT_FALSE(nothing.has_value());
    EXPECT_EQ(captured.graphs(), 0u);
    EXPECT_EQ(captured.replays(), 0);
    EXPECT_EQ(captured.fallback_reason(), "there is no GPU");
    captured.reset();
    auto of_tensors = accelerator.capture([](const Tensors& in) { return in; });
    static_assert(std::is_same_v<decltype(of_tensors), StepCapture>);
  });
}

// What tells kinds of batches apart.
TEST_F(CaptureOnCpu, BatchesDifferInAllThatIsNoTensor) {
  const auto kind_of = [](const Text& text) {
    return detail::captured_value(text, std::shared_ptr<const Text>()).kind;
  };
  const Text text{.ids = torch::ones({2}), .names = {"a", "b"}, .number = 5};
  Text other = text;
  other.ids = torch::zeros({3});  // the core looks at tensors
  EXPECT_EQ(kind_of(other), kind_of(text));
  other.number = 6;
  EXPECT_NE(kind_of(other), kind_of(text));
  other = text;
  other.names = {"ab", ""};
  EXPECT_NE(kind_of(other), kind_of(text));
  other = text;
  other.more["more"] = torch::ones({1});
  EXPECT_NE(kind_of(other), kind_of(text));
}

TEST_F(CaptureOnCpu, RefusesToKeepNoGraphs) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.cpu = true;
    Accelerator accelerator(options);
    const auto step = [](const Tensors& in) { return in; };
    EXPECT_NE(usage_error([&] { accelerator.capture(step, {.most_graphs = 0}); }), "");
    EXPECT_NE(usage_error([&] { accelerator.capture(step, {.warmup_steps = 0}); }), "");
  });
}

}  // namespace
}  // namespace accelerate::test
