// Graphs that differ: from pass to pass, between models, inside and outside of no_sync.
#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct DdpGraphs : Ranks {};

std::vector<at::Tensor> rank_scaled_input(const Rank& rank) {
  return {ones({2, 6}) * (rank.rank + 1)};
}

// Gradients of sum(net(ones * s)) are linear in s: over ranks 0 and 1 the mean is that of s = 1.5.
void expect_mean_gradient(const torch::nn::Linear& layer, const at::Tensor& expected_weight_row) {
  for (int64_t row = 0; row < layer->weight.size(0); ++row) {
    EXPECT_TRUE(torch::allclose(layer->weight.grad()[row], expected_weight_row))
        << layer->weight.grad();
  }
}
const auto kMeanRow = [] { return torch::full({6}, 3.0, test_device()); };  // 2 rows * 1.5

TEST_F(DdpGraphs, TheSetOfUnusedParametersMayChangeFromPassToPass) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu({.find_unused_parameters = true}));
    auto net = std::make_shared<Branches>();
    auto model = accelerator.prepare(net);
    for (const char* used : {"ab", "ac", "b", "abc", "c"}) {
      net->zero_grad();
      accelerator.backward(model(rank_scaled_input(rank)[0], used).sum());
      const std::string names(used);
      if (names.find('a') != std::string::npos) expect_mean_gradient(net->a, kMeanRow());
      if (names.find('b') != std::string::npos) expect_mean_gradient(net->b, kMeanRow());
      if (names.find('c') != std::string::npos) expect_mean_gradient(net->c, kMeanRow());
    }
  });
}

TEST_F(DdpGraphs, AStaticGraphMayBeginInsideNoSync) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu({.static_graph = true}));
    auto net = std::make_shared<Branches>();
    auto model = accelerator.prepare(net);
    const at::Tensor input = rank_scaled_input(rank)[0];
    for (int window = 0; window < 3; ++window) {
      net->zero_grad();
      {
        auto alone = accelerator.no_sync(model);
        accelerator.backward(model(input, "ab").sum());
      }
      accelerator.backward(model(input, "ab").sum());
      expect_mean_gradient(net->a, kMeanRow() * 2);
      expect_mean_gradient(net->b, kMeanRow() * 2);
    }
  });
}

TEST_F(DdpGraphs, AStaticGraphBeginsWithTheFirstLossThatReachesTheModel) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu({.static_graph = true}));
    auto early = std::make_shared<Branches>();
    auto late = std::make_shared<Branches>();
    auto [early_model, late_model] = accelerator.prepare(early, late);
    const at::Tensor input = rank_scaled_input(rank)[0];
    for (int step = 0; step < 3; ++step) {
      early->zero_grad();
      accelerator.backward(early_model(input, "a").sum());
      expect_mean_gradient(early->a, kMeanRow());
    }
    for (int step = 0; step < 3; ++step) {
      late->zero_grad();
      accelerator.backward(late_model(input, "bc").sum());
      expect_mean_gradient(late->b, kMeanRow());
      expect_mean_gradient(late->c, kMeanRow());
    }
  });
}

TEST_F(DdpGraphs, AStaticGraphThatChangesIsRefused) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu({.static_graph = true}));
    auto net = std::make_shared<Branches>();
    auto model = accelerator.prepare(net);
    const at::Tensor input = rank_scaled_input(rank)[0];
    accelerator.backward(model(input, "ab").sum());
    EXPECT_THAT(usage_error([&] { accelerator.backward(model(input, "a").sum()); }),
                AllOf(HasSubstr("rank " + std::to_string(rank.rank)), HasSubstr("static_graph")));
  });
}

TEST_F(DdpGraphs, TheLossOfAnotherModelDoesNotEndNoSync) {
  // Ranks pass a different number of times inside no_sync: nothing may be exchanged there.
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto one = std::make_shared<Mlp>();
    auto other = std::make_shared<Mlp>();
    auto [first, second] = accelerator.prepare(one, other);
    const at::Tensor input = rank_scaled_input(rank)[0];
    accelerator.backward(second(input).sum());
    {
      auto alone = accelerator.no_sync(first);
      auto also_alone = accelerator.no_sync(second);
      for (int pass = 0; pass <= rank.rank; ++pass) accelerator.backward(first(input).sum());
    }
    accelerator.wait_for_everyone();
    accelerator.backward(first(input).sum());
    const at::Tensor own = one->first->weight.grad();
    EXPECT_TRUE(torch::allclose(accelerator.reduce(own, ReduceOp::kMean), own));
  });
}

TEST_F(DdpGraphs, StepNoticesAPlainBackwardAfterARightOne) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
    const at::Tensor input = rank_scaled_input(rank)[0];
    const at::Tensor first = model(input).sum();
    const at::Tensor second = model(input).pow(2).sum();
    accelerator.backward(first);
    second.backward();
    EXPECT_THAT(usage_error([&] { optimizer.step(); }),
                AllOf(HasSubstr("accelerator.backward"),
                      HasSubstr("[rank " + std::to_string(rank.rank) + " of 2]")));
    optimizer.zero_grad();
    accelerator.backward(model(input).sum());
    optimizer.step();
  });
}

TEST_F(DdpGraphs, AnOptimizerOfAnotherModelMayStep) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto one = std::make_shared<Mlp>();
    auto other = std::make_shared<Mlp>();
    auto [first, second, optimizer] =
        accelerator.prepare(one, other, torch::optim::SGD(one->parameters(), 0.1));
    second(rank_scaled_input(rank)[0]).sum().backward();  // for its owner to look at
    accelerator.backward(first(rank_scaled_input(rank)[0]).sum());
    optimizer.step();
  });
}

TEST_F(DdpGraphs, AParameterThatIsUnfrozenAfterPrepareIsRefused) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    net->first->weight.requires_grad_(false);
    auto model = accelerator.prepare(net);
    net->first->weight.requires_grad_(true);
    const at::Tensor loss = model(rank_scaled_input(rank)[0]).sum();
    EXPECT_THAT(usage_error([&] { accelerator.backward(loss); }), HasSubstr("'first.weight'"));
  });
}

TEST_F(DdpGraphs, AfterAFailedBackwardTheModelMustBePreparedAgain) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Branches>();
    auto model = accelerator.prepare(net);
    const at::Tensor input = rank_scaled_input(rank)[0];
    EXPECT_THAT(usage_error([&] { accelerator.backward(model(input, "a").sum()); }),
                HasSubstr("find_unused_parameters"));
    EXPECT_THAT(usage_error([&] { (void)model(input, "abc"); }),
                HasSubstr("earlier backward pass of this model failed"));
    auto again = accelerator.prepare(net);
    net->zero_grad();
    accelerator.backward(again(input, "abc").sum());
    expect_mean_gradient(net->a, kMeanRow());
  });
}

TEST_F(DdpGraphs, BuffersThatWereReplacedAfterPrepareAreStillThoseOfRankZero) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Counting>();
    auto model = accelerator.prepare(net);
    net->seen.set_data(
        torch::full({1}, 10.0 * (rank.rank + 1), test_device()));  // as loading a file does
    accelerator.backward(model(rank_scaled_input(rank)[0]).sum());
    EXPECT_EQ(net->seen.item<float>(), 10.0F + static_cast<float>(rank.rank + 1));
  });
}

TEST_F(DdpGraphs, EvaluationAfterNoSyncUsesTheBuffersOfRankZero) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Counting>();
    auto model = accelerator.prepare(net);
    const at::Tensor input = rank_scaled_input(rank)[0];
    {
      auto alone = accelerator.no_sync(model);
      accelerator.backward(model(input).sum());
    }
    model.eval();
    torch::NoGradGuard no_grad;
    (void)model(input);
    EXPECT_EQ(net->seen.item<float>(), 1.0F);
  });
}

TEST_F(DdpGraphs, ModelsInDifferentMemoryOrderAreRefused) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3));
    if (rank.rank == 1) {
      conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    }
    EXPECT_THAT(usage_error([&] { (void)accelerator.prepare(conv); }),
                AllOf(HasSubstr("'weight'"), HasSubstr("strides")));
  });
}

TEST_F(DdpGraphs, LoadersThatDifferAreRefusedOnAllRanks) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    const auto refusal = [&](int64_t samples, int64_t batch) {
      TensorDataset data(torch::zeros({samples, 2}), torch::zeros({samples}));
      return usage_error(
          [&] { (void)accelerator.prepare(data_loader(data, {.batch_size = batch})); });
    };
    EXPECT_THAT(refusal(10 + rank.rank, 2),
                AllOf(HasSubstr("rank 0 has 10 samples"), HasSubstr("rank 1 has 11 samples")));
    EXPECT_THAT(refusal(10, 2 + rank.rank), HasSubstr("batches of 3"));
  });
}

}  // namespace
}  // namespace accelerate::test
