// Which flat parameters have gradients, and what an update leaves behind: as without flat.
#include <algorithm>
#include <iterator>

#include "multiproc/strategy/flat_branches.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct FlatGradients : Ranks {};

TEST_F(FlatGradients, BranchesThatALossLeavesOutAreLeftAlone) {
  for (const int ranks : {1, 2}) {
    run(ranks, [](const Rank& rank) {
      for (const std::string name : {"adamw", "sgd", "momentum"}) {
        const auto train = [&](const AcceleratorOptions& options, std::vector<bool>& had) {
          FlatBranches it(options, name);
          // What one rank reaches counts on all.
          const std::vector<std::pair<std::string, std::string>> used = {
              {"ab", "ab"}, {"a", "a"}, {"b", "a"}, {"abc", "abc"}, {"c", "b"}, {"a", "a"}};
          for (int step = 0; step < 6; ++step) {
            const auto& [first, second] = used[static_cast<size_t>(step)];
            it.backward(step, rank.rank == 0 ? first : second);
            std::ranges::copy(present(*it.net), std::back_inserter(had));
            it.accelerator.clip_grad_norm_(it.net->parameters(), 0.5);
            it.step();
          }
          return it.values();
        };
        expect_alike(on_cpu(), train, name);
      }
    });
  }
}

// A window of accumulation brings together what any of its micro-batches has reached.
TEST_F(FlatGradients, AWindowReachesWhatAnyOfItsMicroBatchesReaches) {
  run(2, [](const Rank&) {
    const auto train = [](const AcceleratorOptions& options, std::vector<bool>&) {
      FlatBranches it(options);
      const std::vector<std::string> used = {"a", "b", "abc", "a", "c", "c"};
      for (int step = 0; step < 6; ++step) {
        const auto window = it.accelerator.accumulate(it.model);
        it.backward(step, used[static_cast<size_t>(step)]);
        it.step();
      }
      return it.values();
    };
    expect_alike(without_flat(2), train);
  });
}

TEST_F(FlatGradients, AnOptimizerWithoutGradientsIsIdleUnderFp16) {
  for (const int ranks : {1, 2}) {
    run(ranks, [](const Rank& rank) {
      AcceleratorOptions scaled = on_cpu();
      scaled.mixed_precision = MixedPrecision::kFp16;
      scaled.grad_scaler.init_scale = 1024;
      const auto train = [&](const AcceleratorOptions& options, std::vector<bool>&) {
        Accelerator accelerator(options);
        auto net = fresh_branches();
        auto of_a = optimizer_named("adamw", net->a->parameters());
        auto of_b = optimizer_named("adamw", net->b->parameters());
        auto [model, first, second] = accelerator.prepare(net, of_a, of_b);
        for (int step = 0; step < 4; ++step) {
          const bool both = step == 2;
          const StepData data = data_of_step(step, 2 * kRows);
          const at::Tensor output = model(rows_of(data.input, rank.rank), both ? "ab" : "a");
          accelerator.backward(output.square().sum() * (1.0 + step));
          accelerator.unscale_gradients();
          first.step();
          first.zero_grad();
          if (!both) continue;
          second.step();
          second.zero_grad();
        }
        return flat(net->parameters());
      };
      expect_alike(scaled, train);
    });
  }
}

TEST_F(FlatGradients, PartsThatAreFrozenBeforeOrLaterStayAsTheyAre) {
  run(1, [](const Rank&) {
    for (const std::string name : {"adamw", "momentum"}) {
      const auto train = [&](const AcceleratorOptions& options, std::vector<bool>&) {
        auto net = fresh_branches();
        net->c->weight.set_requires_grad(false);
        FlatBranches it(options, name, net);
        for (int step = 0; step < 6; ++step) {
          for (const at::Tensor& parameter : net->b->parameters()) {
            parameter.set_requires_grad(step < 2 || step == 5);
          }
          it.backward(step, "abc");
          it.step();
        }
        return it.values();
      };
      expect_alike(on_cpu(), train, name);
    }
  });
}

TEST_F(FlatGradients, ZeroGradOfEitherKindLeavesWhatTorchLeaves) {
  run(1, [](const Rank&) {
    for (const bool of_module : {true, false}) {
      for (const bool set_to_none : {true, false}) {
        const auto train = [&](const AcceleratorOptions& options, std::vector<bool>& had) {
          FlatBranches it(options);
          for (int step = 0; step < 3; ++step) {
            it.backward(step, step == 0 ? "abc" : "a");
            it.optimizer.step();
            of_module ? it.net->zero_grad(set_to_none) : it.optimizer.zero_grad(set_to_none);
            std::ranges::copy(present(*it.net), std::back_inserter(had));
          }
          return it.values();
        };
        expect_alike(on_cpu(), train,
                     std::to_string(of_module) + " " + std::to_string(set_to_none));
      }
    }
  });
}

// A second pass through a graph whose parameters an update has changed.
TEST_F(FlatGradients, AGraphOfBeforeAnUpdateIsRefused) {
  run(1, [](const Rank&) {
    std::vector<AcceleratorOptions> all = plain_and_flat();
    all.push_back(flat_in_bf16());
    all.push_back(flat_in_bf16());
    all.back().flat->masters = false;
    int way = 0;
    for (const AcceleratorOptions& options : all) {
      FlatLoop loop(options);
      const at::Tensor loss = loop.model(ones({2, 6})).square().sum();
      loop.accelerator.backward(loss, {.retain_graph = true});
      loop.accelerator.backward(loss, {.retain_graph = true});
      loop.optimizer.step();
      std::string text;
      try {
        loop.accelerator.backward(loss);
      } catch (const std::exception& error) {
        text = error.what();
      }
      EXPECT_THAT(text, HasSubstr("modified by an inplace operation")) << way;
      ++way;
    }
  });
}

// What an update has not changed may still be used.
TEST_F(FlatGradients, AGraphOfOtherParametersIsNotRefused) {
  run(1, [](const Rank&) {
    Accelerator accelerator(flat_in_bf16());
    auto net = fresh_branches();
    auto of_a = optimizer_named("adamw", net->a->parameters());
    auto of_b = optimizer_named("adamw", net->b->parameters());
    auto [model, first, second] = accelerator.prepare(net, of_a, of_b);
    const at::Tensor input = ones({2, 6}).requires_grad_();
    const at::Tensor of_other = model(input, "b").square().sum();
    accelerator.backward(model(input, "a").square().sum());
    first.step();
    accelerator.backward(of_other);
    second.step();
  });
}

// Plain SGD leaves no trace by which a second pass could tell that there was no update.
TEST_F(FlatGradients, APassOfBeforeAnotherPassIsNotRefused) {
  run(1, [](const Rank&) {
    for (const std::string name : {"adamw", "sgd"}) {
      FlatLoop loop(flat_in_bf16(), name);
      for (int step = 0; step < 2; ++step) {
        const at::Tensor first = loop.model(ones({2, 6})).square().sum();
        const at::Tensor second = loop.model(ones({2, 6}) * 2).square().sum();
        loop.accelerator.backward(first);
        loop.accelerator.backward(second);
        loop.step();
      }
    }
  });
}

}  // namespace
}  // namespace accelerate::test
