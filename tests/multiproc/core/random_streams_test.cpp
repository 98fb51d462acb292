// Random numbers of the ranks: alike until the loop begins, each its own inside of it.
#include "multiproc/loading.h"
#include "multiproc/state_folder.h"
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

struct RandomStreams : Ranks {
  StateFolder folder;
};

at::Tensor draw() { return torch::rand({4}, test_device()).cpu(); }

// Whether what the ranks drew is the same on all of them, or another on each. Collective.
bool drawn_alike(const Accelerator& accelerator, const at::Tensor& own) {
  const auto all = accelerator.communicator().all_gather(own);
  size_t pairs = 0, equal_pairs = 0;
  for (size_t one = 0; one < all.size(); ++one) {
    for (size_t other = 0; other < one; ++other) {
      ++pairs;
      if (all[one].equal(all[other])) ++equal_pairs;
    }
  }
  EXPECT_TRUE(equal_pairs == 0 || equal_pairs == pairs) << equal_pairs << " of " << pairs;
  return equal_pairs > 0;
}

TensorDataset ten_rows() { return {torch::arange(60.0).view({10, 6}), torch::arange(10)}; }

// What a program draws in the two passes of its loop.
std::vector<at::Tensor> drawn_in_a_loop(const AcceleratorOptions& options, int seed) {
  torch::manual_seed(seed);
  Accelerator accelerator(options);
  auto net = std::make_shared<Mlp>();
  EXPECT_TRUE(drawn_alike(accelerator, net->first->weight.detach().cpu()));
  auto [model, loader] = accelerator.prepare(net, data_loader(ten_rows(), {.batch_size = 1}));
  EXPECT_TRUE(drawn_alike(accelerator, draw())) << "a random target, say";
  std::vector<at::Tensor> noise;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for ([[maybe_unused]] const auto& batch : loader) noise.push_back(draw());
  }
  return noise;
}

TEST_F(RandomStreams, DifferInsideTheLoopAndRepeatForASeed) {
  run(3, [](const Rank&) {
    const auto noise = drawn_in_a_loop(on_cpu(), 1);
    const auto again = drawn_in_a_loop(on_cpu(), 1);
    const auto other = drawn_in_a_loop(on_cpu(), 2);
    Accelerator accelerator(on_cpu());
    ASSERT_EQ(noise.size(), 8u);
    for (size_t i = 0; i < noise.size(); ++i) {
      EXPECT_FALSE(drawn_alike(accelerator, noise[i])) << i;
      EXPECT_TRUE(noise[i].equal(again[i])) << i;
      EXPECT_FALSE(noise[i].equal(other[i])) << i;
    }
  });
}

TEST_F(RandomStreams, OfRankZeroIsTheOneThatWasSeeded) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    const auto loader = accelerator.prepare(data_loader(ten_rows(), {.batch_size = 1}));
    torch::manual_seed(5);
    const at::Tensor expected = draw();
    torch::manual_seed(5);
    const auto pass = loader.begin();
    EXPECT_EQ(draw().equal(expected), rank.rank == 0);
  });
}

TEST_F(RandomStreams, PartAtTheFirstForwardPassOrMicroBatchWhereThereIsNoLoader) {
  run(2, [](const Rank&) {
    for (const bool in_windows : {false, true}) {
      torch::manual_seed(1);
      Accelerator accelerator(on_cpu());
      auto model = accelerator.prepare(std::make_shared<Mlp>());
      EXPECT_TRUE(drawn_alike(accelerator, draw()));
      if (in_windows) {
        const auto micro_batch = accelerator.accumulate(model);
        EXPECT_FALSE(drawn_alike(accelerator, draw()));
      } else {
        (void)model(ones({2, 6}));
        EXPECT_FALSE(drawn_alike(accelerator, draw()));
      }
    }
  });
}

TEST_F(RandomStreams, PartAlsoAtAForwardPassOfAModelThatNeedsNoGradient) {
  run(2, [](const Rank&) {
    torch::manual_seed(1);
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    for (at::Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
    auto model = accelerator.prepare(net);
    EXPECT_TRUE(drawn_alike(accelerator, draw()));
    (void)model(ones({2, 6}));
    EXPECT_FALSE(drawn_alike(accelerator, draw()));
  });
}

TEST_F(RandomStreams, ACallBeforeEachForwardPassIsMadeEveryTimeOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2}) {
    run(ranks, [](const Rank&) {
      Accelerator accelerator(on_cpu());
      auto model = accelerator.prepare(std::make_shared<Mlp>());
      int calls = 0;
      model.strategy()->set_on_forward([&] { ++calls; });
      for (int pass = 0; pass < 3; ++pass) (void)model(ones({2, 6}));
      EXPECT_EQ(calls, 3);
    });
  }
}

TEST_F(RandomStreams, GoOnAfterAResume) {
  run(2, [&](const Rank&) {
    const auto rest_of_pass = [&](bool resumes, int64_t saved_after) {
      torch::manual_seed(resumes ? 99 : 1);
      Accelerator accelerator(on_cpu());
      auto [model, loader] =
          accelerator.prepare(std::make_shared<Mlp>(), data_loader(ten_rows(), {.batch_size = 1}));
      const auto state = folder / std::to_string(saved_after);
      if (resumes) accelerator.load_state(state);
      if (!resumes && saved_after == 0) accelerator.save_state(state);
      std::vector<at::Tensor> drawn;
      for (const auto& batch : loader) {
        drawn.push_back(draw());
        EXPECT_FALSE(drawn_alike(accelerator, drawn.back()));
        if (!resumes && batch.info().index + 1 == saved_after) {
          accelerator.save_state(state);
          drawn.clear();
        }
      }
      return drawn;
    };
    for (const int64_t saved_after : {2, 0}) {
      const auto expected = rest_of_pass(false, saved_after);
      const auto resumed = rest_of_pass(true, saved_after);
      ASSERT_EQ(resumed.size(), static_cast<size_t>(5 - saved_after));
      ASSERT_EQ(expected.size(), resumed.size());
      for (size_t i = 0; i < resumed.size(); ++i) EXPECT_TRUE(resumed[i].equal(expected[i])) << i;
    }
  });
}

TEST_F(RandomStreams, AreKeptInStepWhereRngTypesNameThem) {
  run(2, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.data_loader.rng_types = {RngType::kTorch, RngType::kCuda};
    const auto noise = drawn_in_a_loop(options, 1);
    Accelerator accelerator(on_cpu());
    for (const at::Tensor& each : noise) EXPECT_TRUE(drawn_alike(accelerator, each));
  });
}

TEST_F(RandomStreams, AreLeftAloneWhereThatIsAskedFor) {
  run(2, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.separate_random_streams = false;
    const auto noise = drawn_in_a_loop(options, 1);
    Accelerator accelerator(on_cpu());
    for (const at::Tensor& each : noise) EXPECT_TRUE(drawn_alike(accelerator, each));
  });
}

}  // namespace
}  // namespace accelerate::test
