// What prepare() and the prepared objects promise, on one and on two ranks.
#include <sstream>

#include "multiproc/training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

// A module as users write it: a holder, default arguments, several results.
struct PairImpl : torch::nn::Module {
  PairImpl() : linear(register_module("linear", torch::nn::Linear(6, 3))) {}
  std::tuple<at::Tensor, int> forward(const at::Tensor& input, double scale = 2.0, int extra = 7) {
    return {linear(input) * scale, extra};
  }
  int calls_past_the_strategy() { return 1; }

  torch::nn::Linear linear;
};
TORCH_MODULE(Pair);

// Takes and returns what is not a tensor, also things that can only be moved.
struct Odd : torch::nn::Module {
  Odd() : weight(register_parameter("weight", torch::ones({2}))) {}
  std::unique_ptr<int> forward(std::unique_ptr<int> value, int& counter) {
    ++counter;
    return value;
  }

  at::Tensor weight;
};

TensorDataset six_rows(int64_t n = 12) {
  return {torch::arange(n * 6).view({n, 6}).to(at::kFloat), torch::arange(n)};
}

struct AcceleratorOn : Ranks, testing::WithParamInterface<int> {
  void run_ranks(const RankBody& body) { run(GetParam(), body); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, AcceleratorOn, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

TEST_P(AcceleratorOn, KnowsItsPlace) {
  run_ranks([](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    EXPECT_EQ(accelerator.num_processes(), rank.world_size);
    EXPECT_EQ(accelerator.process_index(), rank.rank);
    EXPECT_EQ(accelerator.local_process_index(), rank.rank);
    EXPECT_EQ(accelerator.is_main_process(), rank.rank == 0);
    EXPECT_EQ(accelerator.is_local_main_process(), rank.rank == 0);
    EXPECT_EQ(accelerator.is_last_process(), rank.rank == rank.world_size - 1);
    EXPECT_EQ(accelerator.device(), test_device());
    const auto several = tests_on_gpu() ? DistributedType::kMultiGpu : DistributedType::kMultiCpu;
    EXPECT_EQ(accelerator.distributed_type(),
              rank.world_size == 1 ? DistributedType::kNo : several);
    EXPECT_EQ(accelerator.strategy_name(), rank.world_size == 1 ? "single" : "ddp");
  });
}

TEST_P(AcceleratorOn, PreparesAnyNumberInAnyOrderAndReturnsThemInThatOrder) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    Pair net;
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto batches = data_loader(six_rows(), {.batch_size = 2});
    {
      auto [model, optimizer, loader] = accelerator.prepare(net, sgd, batches);
      static_assert(std::is_same_v<decltype(model), PreparedModel<PairImpl>>);
      static_assert(std::is_same_v<decltype(optimizer), PreparedOptimizer>);
      static_assert(std::is_same_v<decltype(loader), decltype(batches)>);
    }
    {
      auto [loader, optimizer, model] = accelerator.prepare(batches, sgd, net);
      EXPECT_EQ(&optimizer.optimizer(), &sgd);
      EXPECT_EQ(model.module(), net.ptr());
      EXPECT_TRUE(loader.is_sharded());
      EXPECT_FALSE(batches.is_sharded());
    }
    auto optimizer = accelerator.prepare(sgd);
    static_assert(std::is_same_v<decltype(optimizer), PreparedOptimizer>);
    auto model = accelerator.prepare(net);
    static_assert(std::is_same_v<decltype(model), PreparedModel<PairImpl>>);
  });
}

TEST_P(AcceleratorOn, TakesHoldersSharedPointersAndSequential) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    torch::nn::Sequential sequential(torch::nn::Linear(6, 4), torch::nn::ReLU(),
                                     torch::nn::Linear(4, 3));
    auto shared = std::make_shared<Mlp>();
    torch::nn::Linear library_holder(6, 3);
    auto [a, b, c, d] = accelerator.prepare(sequential, shared, library_holder, Pair());
    const at::Tensor input = ones({2, 6});
    EXPECT_TRUE(a(input).equal(sequential->forward(input)));
    EXPECT_TRUE(b(input).equal(shared->forward(input)));
    EXPECT_TRUE(c(input).equal(library_holder->forward(input)));
    EXPECT_EQ(std::get<1>(d(input)), 7);
  });
}

TEST_P(AcceleratorOn, AnRvalueIsMovedInAndLives) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    auto [model, optimizer, loader] =
        accelerator.prepare(std::shared_ptr<Mlp>(net), torch::optim::SGD(net->parameters(), 0.1),
                            data_loader(six_rows(), {.batch_size = 2}));
    const auto before = flat(net->parameters());
    for (auto& batch : loader) {
      optimizer.zero_grad();
      accelerator.backward(model(batch.data).mean());
      optimizer.step();
      break;
    }
    EXPECT_NE(flat(net->parameters()), before);
  });
}

TEST_P(AcceleratorOn, ObjectsPassThroughWhereThatIsAskedFor) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    std::string name = "unchanged";
    auto [text, number, pointer, model] = accelerator.prepare(
        pass_through(name), pass_through(42), pass_through(std::make_unique<int>(5)), Pair());
    static_assert(std::is_same_v<decltype(text), std::string&>);
    static_assert(std::is_same_v<decltype(number), int>);
    EXPECT_EQ(&text, &name);
    EXPECT_EQ(number, 42);
    EXPECT_EQ(*pointer, 5);
    EXPECT_EQ(model.parameters().size(), 2U);
  });
}

TEST_P(AcceleratorOn, APreparedObjectIsNotWrappedTwice) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer, loader] =
        accelerator.prepare(net, sgd, data_loader(six_rows(), {.batch_size = 2}));
    auto [model2, optimizer2, loader2] = accelerator.prepare(model, optimizer, loader);
    static_assert(std::is_same_v<decltype(model2), decltype(model)>);
    EXPECT_EQ(model2.strategy(), model.strategy());
    EXPECT_EQ(&optimizer2.optimizer(), &sgd);
    EXPECT_EQ(loader2.size(), loader.size());
    auto again = accelerator.prepare(net);
    EXPECT_EQ(again.strategy(), model.strategy());
    // One pass through all of them still reduces once.
    accelerator.backward(model2(ones({4, 6})).sum());
    EXPECT_EQ(flat({net->second->bias.grad()}), std::vector<double>(3, 4.0));
  });
}

TEST_P(AcceleratorOn, CallAndForwardAreTheSameWithAnyArgumentsAndResults) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    Pair net;
    auto odd = std::make_shared<Odd>();
    auto [model, strange] = accelerator.prepare(net, odd);
    const at::Tensor input = ones({2, 6});
    const at::Tensor plain = net->linear(input);
    auto [output, extra] = model(input);
    EXPECT_TRUE(output.equal(plain * 2.0));
    EXPECT_EQ(extra, 7);
    EXPECT_TRUE(std::get<0>(model->forward(input, 3.0)).equal(plain * 3.0));
    EXPECT_EQ(std::get<1>(model.forward(input, 3.0, 9)), 9);
    int counter = 0;
    std::unique_ptr<int> value = strange(std::make_unique<int>(8), counter);
    EXPECT_EQ(*value, 8);
    value = strange->forward(std::move(value), counter);
    EXPECT_EQ(counter, 2);
    static_assert(!std::is_invocable_v<decltype(model), std::string>);
  });
}

TEST_P(AcceleratorOn, TrainAndEvalReachTheModule) {
  run_ranks([](const Rank&) {
    Accelerator accelerator(on_cpu());
    torch::nn::Sequential net(torch::nn::Linear(6, 3), torch::nn::Dropout(0.5));
    auto model = accelerator.prepare(net);
    model->eval();
    EXPECT_FALSE(net->is_training());
    model.train();
    EXPECT_TRUE(net->is_training());
    EXPECT_TRUE(model.is_training());
    EXPECT_EQ(model.named_parameters().keys(), (std::vector<std::string>{"0.weight", "0.bias"}));
  });
}

TEST_P(AcceleratorOn, UnwrapModelReturnsTheUsersOwnModule) {
  run_ranks([](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    Pair net;
    auto model = accelerator.prepare(net);
    std::shared_ptr<PairImpl> own = accelerator.unwrap_model(model);
    EXPECT_EQ(own, net.ptr());
    EXPECT_EQ(own->calls_past_the_strategy(), 1);
    if (rank.rank == 0) (void)own->forward(ones({1, 6}));  // nobody else has to
    accelerator.wait_for_everyone();
  });
}

TEST_P(AcceleratorOn, FreeMemoryLetsGoOfModulesAndTheyCanBePreparedAgain) {
  run_ranks([](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    std::weak_ptr<Mlp> gone;
    {
      auto net = std::make_shared<Mlp>();
      gone = net;
      auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
      accelerator.backward(model(ones({1, 6})).sum());
    }
    EXPECT_FALSE(gone.expired());
    accelerator.free_memory();
    EXPECT_TRUE(gone.expired());

    auto net = std::make_shared<Mlp>();
    auto model = accelerator.prepare(net);
    accelerator.free_memory();
    if (rank.world_size > 1) {
      EXPECT_THROW((void)model(ones({1, 6})), UsageError);
    }
    auto again = accelerator.prepare(net);
    accelerator.backward(again(ones({4, 6})).sum());
    EXPECT_EQ(flat({net->second->bias.grad()}), std::vector<double>(3, 4.0));
  });
}

TEST_P(AcceleratorOn, TwoAcceleratorsInOneProcessTrainIndependently) {
  run_ranks([](const Rank& rank) {
    Accelerator first(on_cpu());
    Accelerator second(on_cpu({.find_unused_parameters = true}));
    auto net_a = std::make_shared<Mlp>();
    auto net_b = std::make_shared<Mlp>();
    auto a = first.prepare(net_a);
    auto b = second.prepare(net_b);
    const at::Tensor input = ones({rank.rank + 1, 6});
    first.backward(a(input).sum());
    EXPECT_FALSE(net_b->second->bias.grad().defined());
    second.backward(b(input).sum() * 10);
    const double mean_rows = (rank.world_size + 1) / 2.0;
    EXPECT_EQ(flat({net_a->second->bias.grad()}), std::vector<double>(3, mean_rows));
    EXPECT_EQ(flat({net_b->second->bias.grad()}), std::vector<double>(3, 10 * mean_rows));
  });
}

TEST_P(AcceleratorOn, AMovedAcceleratorGoesOn) {
  run_ranks([](const Rank& rank) {
    Accelerator first(on_cpu());
    auto model = first.prepare(std::make_shared<Mlp>());
    Accelerator second = std::move(first);
    second.backward(model(ones({4, 6})).sum());
    EXPECT_EQ(second.reduce(torch::tensor(1)).item<int>(), rank.world_size);
  });
}

TEST_P(AcceleratorOn, TheModelOutlivesItsAccelerator) {
  run_ranks([](const Rank&) {
    auto model = [] {
      Accelerator accelerator(on_cpu());
      return accelerator.prepare(std::make_shared<Mlp>());
    }();
    torch::NoGradGuard no_grad;
    EXPECT_EQ(model(ones({4, 6})).size(0), 4);
  });
}

TEST_P(AcceleratorOn, GatherAndReduceJoinTheRanks) {
  run_ranks([](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    const int n = rank.world_size;
    const at::Tensor rows = accelerator.gather(torch::full({2, 1}, rank.rank, test_device()));
    EXPECT_TRUE(rows.cpu().equal(torch::arange(n).repeat_interleave(2).view({2 * n, 1})));
    EXPECT_TRUE(
        accelerator.gather(torch::tensor(rank.rank, test_device())).cpu().equal(torch::arange(n)));
    const at::Tensor own = torch::tensor({rank.rank + 1.0}, test_device());
    EXPECT_EQ(accelerator.reduce(own).item<double>(), n * (n + 1) / 2.0);
    EXPECT_EQ(accelerator.reduce(own, ReduceOp::kMean).item<double>(), (n + 1) / 2.0);
    EXPECT_EQ(own.item<double>(), rank.rank + 1.0);
  });
}

TEST_P(AcceleratorOn, PrintWritesOnTheMainProcessAlone) {
  spawn(GetParam(), [](const Rank&) {
    Accelerator accelerator(on_cpu());
    accelerator.print("accuracy ", 0.5, " of ", 3);
  });
  for (int rank = 0; rank < GetParam(); ++rank) {
    EXPECT_EQ(exit_code_of(rank), kExitPassed);
    EXPECT_EQ(output_of(rank), rank == 0 ? "accuracy 0.5 of 3\n" : "");
  }
}

TEST_P(AcceleratorOn, APreparedLoaderGivesEachRankItsShare) {
  const auto seen = run_collect(GetParam(), [](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto loader = accelerator.prepare(data_loader(six_rows(10), {.batch_size = 2}));
    std::vector<int64_t> targets;
    for (auto& batch : loader) {
      for (int64_t i = 0; i < batch.info().valid; ++i) {
        targets.push_back(batch.target[i].item<int64_t>());
      }
    }
    return targets;
  });
  std::vector<int64_t> all;
  for (const auto& targets : seen) all.insert(all.end(), targets.begin(), targets.end());
  std::ranges::sort(all);
  EXPECT_THAT(all, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

TEST_P(AcceleratorOn, ShuffledLoadersAgreeOnTheOrderWhateverTheSeedsOfTheRanks) {
  const auto seen = run_collect(GetParam(), [](const Rank& rank) {
    torch::manual_seed(100 + rank.rank);
    Accelerator accelerator(on_cpu());
    auto loader =
        accelerator.prepare(data_loader(six_rows(16), {.batch_size = 2, .shuffle = true}));
    std::vector<int64_t> targets;
    for (auto& batch : loader) {
      for (int64_t i = 0; i < 2; ++i) targets.push_back(batch.target[i].item<int64_t>());
    }
    return targets;
  });
  std::vector<int64_t> all;
  for (const auto& targets : seen) all.insert(all.end(), targets.begin(), targets.end());
  EXPECT_FALSE(std::ranges::is_sorted(all));
  std::ranges::sort(all);
  std::vector<int64_t> each_once(16);
  std::iota(each_once.begin(), each_once.end(), 0);
  EXPECT_EQ(all, each_once);
}

struct AcceleratorErrors : Ranks {};

TEST_F(AcceleratorErrors, CarryTheRank) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    const std::string stamp = "[rank " + std::to_string(rank.rank) + " of 2]";
    const auto expect_stamped = [&](auto action) {
      try {
        action();
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.rank(), rank.rank);
        EXPECT_THAT(error.what(), HasSubstr(stamp));
      }
    };
    expect_stamped([&] { (void)accelerator.gather(at::Tensor()); });
    expect_stamped([&] { (void)accelerator.reduce(torch::tensor(1), ReduceOp::kMean); });
    expect_stamped([&] { (void)accelerator.prepare(std::make_shared<Mlp>(rank.rank + 3)); });
  });
}

TEST_F(AcceleratorErrors, SplitBatchesNeedABatchThatTheRanksCanShare) {
  run(2, [](const Rank& rank) {
    AcceleratorOptions options = on_cpu();
    options.data_loader.split_batches = true;
    Accelerator accelerator(options);
    try {
      (void)accelerator.prepare(data_loader(six_rows(), {.batch_size = 3}));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UsageError& error) {
      EXPECT_EQ(error.rank(), rank.rank) << error.what();
    }
  });
}

TEST_F(AcceleratorErrors, AProgramStartedByHandIsOneProcess) {
  run(1,
      [](const Rank&) {
        Accelerator accelerator(on_cpu());
        EXPECT_EQ(accelerator.num_processes(), 1);
        EXPECT_EQ(accelerator.distributed_type(), DistributedType::kNo);
      },
      {.launched = false});
}

TEST_F(AcceleratorErrors, AHalfSetEnvironmentIsAConfigErrorThatNamesTheVariable) {
  spawn(1, [](const Rank&) { Accelerator accelerator(on_cpu()); },
        {.environment = {{"WORLD_SIZE", "2"}}, .launched = false});
  EXPECT_EQ(exit_code_of(0), kExitConfigError);
  EXPECT_THAT(error_of(0), HasSubstr("RANK"));
}

TEST_F(AcceleratorErrors, APrecisionThatDoesNotExistIsNotIgnored) {
  spawn(1, [](const Rank&) { Accelerator accelerator(on_cpu()); },
        {.environment = {{"ACCELERATE_MIXED_PRECISION", "bf61"}}});
  EXPECT_EQ(exit_code_of(0), kExitConfigError);
  EXPECT_THAT(error_of(0), HasSubstr("ACCELERATE_MIXED_PRECISION"));
}

}  // namespace
}  // namespace accelerate::test
