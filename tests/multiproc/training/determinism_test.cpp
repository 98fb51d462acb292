// AcceleratorOptions::deterministic: runs that give the same bits, and what is refused under it.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "multiproc/loading.h"
#include "multiproc/state_folder.h"
#include "multiproc/strategy/replicas.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

AcceleratorOptions deterministic_options(bool wanted = true) {
  AcceleratorOptions options = on_cpu();
  options.deterministic = wanted;
  return options;
}

struct Determinism : Replicas {};

// Wide enough for several threads. Calls its branches in the order that it is told, and adds their
// results in one and the same order: gradients are equal, and come in another order.
struct OrderedBranches : torch::nn::Module {
  explicit OrderedBranches(std::string order) : order(std::move(order)) {
    for (const char name : std::string("abc")) {
      branches.emplace(name, register_module(std::string(1, name), torch::nn::Linear(6, 4099)));
    }
    last = register_module("last", torch::nn::Linear(4099, 3));
    to(test_device());
  }
  at::Tensor forward(const at::Tensor& input) {
    std::map<char, at::Tensor> results;
    for (const char name : order) results.emplace(name, torch::tanh(branches.at(name)(input)));
    return last(results.at('a') + results.at('b') + results.at('c'));
  }
  std::string order;
  std::map<char, torch::nn::Linear> branches;
  torch::nn::Linear last{nullptr};
};

struct Trained {
  std::vector<int64_t> order;  // of the gradients
  std::string bits;            // of the parameters
};

Trained train(const Rank& rank, bool wanted, const std::string& order) {
  at::set_num_threads(2);
  Accelerator accelerator(deterministic_options(wanted));
  torch::manual_seed(11);
  auto net = std::make_shared<OrderedBranches>(order);
  torch::optim::AdamW adamw(net->parameters(), 0.01);
  auto [model, optimizer] = accelerator.prepare(net, adamw);
  constexpr int64_t kManyRows = 64;
  for (int step = 0; step < 3; ++step) {
    const StepData data = data_of_step(step, kManyRows * rank.world_size);
    accelerator.backward(loss_of(model(rows_of(data.input, rank.rank, kManyRows)),
                                 rows_of(data.target, rank.rank, kManyRows)));
    optimizer.step();
    optimizer.zero_grad();
  }
  Trained trained;
  if (ExchangeMemory* memory = model.strategy()->exchange_memory()) {
    trained.order = memory->state().gradient_order;
  }
  for (const at::Tensor& parameter : net->parameters()) {
    const at::Tensor values = parameter.detach().cpu().contiguous();
    trained.bits.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  }
  return trained;
}

TEST_F(Determinism, TwoRunsEndWithTheSameBitsOnOneToThreeRanks) {
  for (const int ranks : {1, 2, 3}) {
    const auto body = [](const Rank& rank) { return train(rank, true, "abc").bits; };
    const auto first = run_collect(ranks, body);
    const auto second = run_collect(ranks, body);
    ASSERT_FALSE(first[0].empty());
    for (const std::string& bits : first) EXPECT_TRUE(bits == first[0]) << ranks << " ranks";
    EXPECT_TRUE(first == second) << ranks << " ranks";
  }
}

// Buckets otherwise follow the order in which the first pass shows gradients, and the rounding of
// sums over more than two ranks follows the buckets.
TEST_F(Determinism, GradientsThatComeInAnotherOrderEndInTheSameBits) {
  const auto order_of = [&](bool wanted, const std::string& order) {
    return run_collect(2, [=](const Rank& rank) { return train(rank, wanted, order).order; });
  };
  const auto bits_of = [&](const std::string& order) {
    return run_collect(3, [=](const Rank& rank) { return train(rank, true, order).bits; });
  };
  EXPECT_NE(order_of(false, "abc"), order_of(false, "cab"));
  EXPECT_THAT(order_of(true, "cab")[1], ElementsAre(7, 6, 5, 4, 3, 2, 1, 0));
  EXPECT_TRUE(bits_of("abc") == bits_of("cab"));
}

// libtorch has no way to do this that is the same in every run: elements may be meant twice.
at::Tensor unpooled(const at::Tensor& values) {
  const at::Tensor places = torch::arange(values.numel(), at::kLong).view({1, 1, 1, -1});
  return torch::max_unpool2d(values.view({1, 1, 1, -1}), places, {1, values.numel()})
      .view(values.sizes());
}

struct UnpooledGradient : torch::autograd::Function<UnpooledGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) {
    return input.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {unpooled(gradients[0])};
  }
};

// A net of which rank `where` computes what has no deterministic implementation, forwards or
// backwards; -1: all of them.
struct Unpooling : Net {
  Unpooling(bool here, bool backwards)
      : first(register_module("first", torch::nn::Linear(6, 4))),
        second(register_module("second", torch::nn::Linear(4, 3))),
        here(here),
        backwards(backwards) {}
  at::Tensor forward(at::Tensor input) override {
    at::Tensor inner = first(input);
    if (here) inner = backwards ? UnpooledGradient::apply(inner) : unpooled(inner);
    return second(inner);
  }
  torch::nn::Linear first, second;
  bool here, backwards;
};

void train_unpooling(bool here, bool backwards) {
  Accelerator accelerator(deterministic_options());
  auto net = std::make_shared<Unpooling>(here, backwards);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const StepData data = data_of_step(0, kRows);
  accelerator.backward(loss_of(model(data.input), data.target));
  optimizer.step();
}

TEST_F(Determinism, AnOperationWithoutADeterministicImplementationIsNamedOnAllRanks) {
  for (const bool backwards : {false, true}) {
    for (const int where : {-1, 1}) {
      SCOPED_TRACE((backwards ? "backwards, " : "forwards, ") + std::to_string(where));
      spawn(2, [=](const Rank& rank) {
        train_unpooling(where == -1 || where == rank.rank, backwards);
      });
      expect_one_error_on_all(
          2, AllOf(HasSubstr("'max_unpooling2d_forward_out' has no deterministic implementation"),
                   HasSubstr(backwards ? "at   backward" : "at   forward"),
                   HasSubstr("AcceleratorOptions::deterministic")));
    }
  }
}

TEST_F(Determinism, AnOperationIsNamedOnOneRankToo) {
  run(1, [](const Rank&) {
    EXPECT_THAT(usage_error([] { train_unpooling(true, false); }),
                HasSubstr("'max_unpooling2d_forward_out' has no deterministic implementation"));
    // Without the option nobody minds.
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(std::make_shared<Unpooling>(true, false));
    EXPECT_EQ(model(data_of_step(0, kRows).input).size(0), kRows);
  });
}

TEST_F(Determinism, AcceleratorsThatContradictEachOtherAreRefused) {
  run(1, [](const Rank&) {
    const auto contradiction = HasSubstr("one accelerator of this process is deterministic");
    {
      const Accelerator accelerator(deterministic_options());
      const Accelerator same(deterministic_options());
      EXPECT_THAT(usage_error([] { Accelerator other(on_cpu()); }), contradiction);
    }
    const Accelerator plain(on_cpu());
    EXPECT_THAT(usage_error([] { Accelerator other(deterministic_options()); }), contradiction);
  });
}

// The group of an accelerator that has ended tells nobody.
TEST_F(Determinism, AnOperationIsNamedOnAllRanksByTheGroupThatIsStillThere) {
  spawn(2, [](const Rank& rank) {
    auto first = std::make_unique<Accelerator>(deterministic_options());
    auto second = std::make_unique<Accelerator>(deterministic_options());
    first.reset();
    auto net = std::make_shared<Unpooling>(rank.rank == 1, false);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = second->prepare(net, sgd);
    const StepData data = data_of_step(0, kRows);
    second->backward(loss_of(model(data.input), data.target));
    optimizer.step();
  });
  expect_one_error_on_all(2, HasSubstr("'max_unpooling2d_forward_out' has no deterministic"));
}

TEST_F(Determinism, OtherRanksThanTheFirstMayHaveOtherNumbersOfThreads) {
  const StateFolder folder;
  const auto dir = folder.path() / "state";
  run(2, [=](const Rank& rank) {
    at::set_num_threads(1 + rank.rank);
    Accelerator accelerator(deterministic_options());
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    accelerator.save_state(dir);
    accelerator.load_state(dir);
  });
}

TEST_F(Determinism, TheSettingsOfLibtorchAreThoseOfBeforeWhenTheLastAcceleratorHasEnded) {
  run(1, [](const Rank&) {
    auto& context = at::globalContext();
    context.setBenchmarkCuDNN(true);
    context.setDeterministicFillUninitializedMemory(false);
    const auto settings = [&context] {
      return std::vector<bool>{context.deterministicAlgorithms(),
                               context.deterministicAlgorithmsWarnOnly(),
                               context.deterministicFillUninitializedMemory(),
                               context.deterministicCuDNN(),
                               context.benchmarkCuDNN(),
                               context.deterministicMkldnn()};
    };
    const std::vector<bool> before = settings();
    auto first = std::make_unique<Accelerator>(deterministic_options());
    auto second = std::make_unique<Accelerator>(deterministic_options());
    const std::vector<bool> expected{true, false, true, true, false, true};
    EXPECT_EQ(settings(), expected);
    first.reset();
    EXPECT_EQ(settings(), expected);
    second.reset();
    EXPECT_EQ(settings(), before);
  });
}

TEST_F(Determinism, ACheckpointOfAnotherNumberOfThreadsIsRefused) {
  const StateFolder folder;
  const auto dir = folder.path() / "state";
  const auto load = [dir](bool wanted) {
    Accelerator accelerator(deterministic_options(wanted));
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    accelerator.load_state(dir);
  };
  run(1, [=](const Rank&) {
    {
      Accelerator accelerator(deterministic_options());
      auto model = accelerator.prepare(std::make_shared<Mlp>());
      accelerator.save_state(dir);
    }
    load(true);
    at::set_num_threads(at::get_num_threads() + 1);
    load(false);
    EXPECT_THAT(thrown_by<CheckpointError>([&] { load(true); }),
                AllOf(HasSubstr("saved by a deterministic run with 1 thread on rank 0"),
                      HasSubstr("OMP_NUM_THREADS=1")));
  });
}

}  // namespace
}  // namespace accelerate::test
