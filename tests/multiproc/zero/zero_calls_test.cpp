// Calls of a program around sharded training that is in an unusual state: they are right, or
// refused.
#include <filesystem>
#include <sstream>

#include "multiproc/state_folder.h"
#include "multiproc/zero/zero_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct ZeroCalls : Ranks {
  StateFolder folder;
};

// As a function that takes a torch::optim::Optimizer& does.
TEST_F(ZeroCalls, OfTheConvertedOptimizerReachAllParametersOfTheirGroups) {
  run(2, [](const Rank& rank) {
    const auto train = [&](const AcceleratorOptions& options) {
      Accelerator accelerator(options);
      torch::manual_seed(3);
      auto net = std::make_shared<Mlp>(40);
      const auto own = zero_optimizer("adamw", net->parameters());
      auto [model, optimizer] = accelerator.prepare(net, *own);
      torch::optim::Optimizer& plain = optimizer;
      for (int step = 0; step < 3; ++step) {
        const StepData data = data_of_step(step, 2 * kRows);
        accelerator.backward(
            loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank)));
        plain.step();
        plain.zero_grad();
      }
      std::vector<size_t> sizes;
      for (const auto& group : plain.param_groups()) sizes.push_back(group.params().size());
      EXPECT_EQ(sizes, std::vector<size_t>({2, 2})) << accelerator.strategy_name();
      return values_of(net->parameters());
    };
    const std::vector<double> expected = train(on_cpu());
    for (const int stage : zero_stages()) {
      EXPECT_EQ(train(zero(stage)), expected) << "stage " << stage;
    }
  });
}

TEST_F(ZeroCalls, MayPutOtherGradientsInThePlaceOfTheirPieces) {
  for (const int ranks : {2, 3}) {
    run(ranks, [](const Rank& rank) {
      const auto train = [&](const AcceleratorOptions& options) {
        Accelerator accelerator(options);
        torch::manual_seed(3);
        auto net = std::make_shared<Mlp>(40);
        auto [model, optimizer] =
            accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
        for (int step = 0; step < 2; ++step) {
          const StepData data = data_of_step(step, 3 * kRows);
          for (int pass = 0; pass < 2; ++pass) {
            accelerator.backward(
                loss_of(model(rows_of(data.input, rank.rank)), rows_of(data.target, rank.rank)));
            for (const at::Tensor& parameter : net->parameters()) {
              parameter.mutable_grad() = parameter.grad() * 0.5;
            }
          }
          accelerator.clip_grad_norm_(net->parameters(), 0.05);
          optimizer.step();
          optimizer.zero_grad();
        }
        return values_of(net->parameters());
      };
      const std::vector<double> expected = train(on_cpu());
      for (const int stage : zero_stages()) {
        EXPECT_TRUE(near(train(zero(stage)), expected, 1e-6)) << "stage " << stage;
      }
    });
  }
}

TEST_F(ZeroCalls, OfStepByGradientsOfThisRankAloneAreRefusedAfterNoSync) {
  run(2, [](const Rank& rank) {
    for (const int stage : zero_stages()) {
      const AcceleratorOptions options = zero(stage, {.check_replicas = false});
      Accelerator accelerator(options);
      torch::manual_seed(1);
      auto net = std::make_shared<Mlp>(40);
      auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
      const at::Tensor input = ones({2, 6}) * (rank.rank + 1);
      const std::vector<double> before = values_of(net->parameters());
      {
        const auto local = accelerator.no_sync(model);
        accelerator.backward(model(input).sum());
      }
      EXPECT_THAT(usage_error([&, &optimizer = optimizer] { optimizer.step(); }),
                  HasSubstr("the gradients are those of this rank alone"))
          << "stage " << stage;
      EXPECT_EQ(values_of(net->parameters()), before);
      accelerator.backward(model(input).sum());
      optimizer.step();
      EXPECT_NE(values_of(net->parameters()), before);
    }
  });
}

TEST_F(ZeroCalls, OfPrepareRefuseAnOptimizerThatHoldsShares) {
  run(2, [](const Rank&) {
    for (const int stage : zero_stages()) {
      torch::manual_seed(1);
      auto net = std::make_shared<Mlp>(40);
      torch::optim::SGD sgd(net->parameters(), 0.1);
      const auto refused = AllOf(HasSubstr("holds this rank's share of 'first."),
                                 HasSubstr("make a new optimizer of the parameters of the module"));
      {
        Accelerator accelerator(zero(stage));
        auto [model, optimizer] = accelerator.prepare(net, sgd);
        accelerator.free_memory();
        EXPECT_THAT(usage_error([&] { (void)accelerator.prepare(sgd); }), refused);
      }
      for (const AcceleratorOptions& options : {zero(1), on_cpu()}) {
        Accelerator other(options);
        EXPECT_THAT(usage_error([&] { (void)other.prepare(sgd); }), refused);
      }
    }
  });
}

// What it holds is cut as the model was.
TEST_F(ZeroCalls, OfAnOptimizerOfAnEarlierPreparationAreRefused) {
  run(2, [](const Rank&) {
    for (const int stage : {1, 2}) {
      Accelerator accelerator(zero(stage));
      torch::manual_seed(1);
      auto net = std::make_shared<Mlp>(40);
      net->first->bias.set_requires_grad(false);
      const std::vector<at::Tensor> trained{net->first->weight, net->second->weight};
      auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(trained, 0.1));
      accelerator.free_memory();
      net->first->bias.set_requires_grad(true);
      auto again = accelerator.prepare(net);
      accelerator.backward(again(ones({2, 6})).sum());
      EXPECT_THAT(usage_error([&, &optimizer = optimizer] { optimizer.step(); }),
                  AllOf(HasSubstr("was released"), HasSubstr("a new optimizer")));
    }
  });
}

TEST_F(ZeroCalls, OfTorchSaveOfAnOptimizerAreRefused) {
  run(2, [](const Rank&) {
    for (const int stage : zero_stages()) {
      Accelerator accelerator(zero(stage));
      auto net = std::make_shared<Mlp>(40);
      auto [model, optimizer] =
          accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1));
      const auto refused = AllOf(HasSubstr("this rank has pieces"), HasSubstr("save_state()"));
      std::stringstream stream;
      EXPECT_THAT(usage_error([&, &optimizer = optimizer] { torch::save(optimizer, stream); }),
                  refused);
      torch::save(torch::optim::AdamW(torch::nn::Linear(2, 3)->parameters(), 0.1), stream);
      EXPECT_THAT(usage_error([&, &optimizer = optimizer] { torch::load(optimizer, stream); }),
                  refused);
      torch::optim::Optimizer& plain = optimizer;
      EXPECT_THAT(usage_error([&] { torch::save(plain, stream); }), refused);
    }
  });
}

// That optimizer has no gradients: nothing would be trained, without a word.
TEST_F(ZeroCalls, OfStepOfTheOptimizerThatWasGivenToPrepareAreToldOf) {
  run(2, [](const Rank& rank) {
    for (const int stage : zero_stages()) {
      for (const bool is_own : {false, true}) {
        Accelerator accelerator(zero(stage));
        auto net = std::make_shared<Mlp>(40);
        torch::optim::SGD sgd(net->parameters(), 0.1);
        auto [model, optimizer] = accelerator.prepare(net, sgd);
        testing::internal::CaptureStderr();
        for (int step = 0; step < 40; ++step) {
          accelerator.backward(model(ones({2, 6})).sum());
          is_own ? (void)sgd.step() : (void)optimizer.step();
          optimizer.zero_grad();
        }
        const std::string text = testing::internal::GetCapturedStderr();
        const size_t told = text.find("its own step() updates nothing");
        EXPECT_EQ(told != std::string::npos, is_own && rank.rank == 0) << text;
        if (told != std::string::npos) {
          EXPECT_EQ(text.find("its own step()", told + 1), std::string::npos) << text;
        }
      }
    }
  });
}

TEST_F(ZeroCalls, OfStepInAScopeOfWholeParametersChangeNothing) {
  run(2, [](const Rank&) {
    Accelerator accelerator(zero(3));
    torch::manual_seed(1);
    auto net = std::make_shared<Mlp>(40);
    auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
    const std::vector<double> before = values_of(net->parameters());
    accelerator.backward(model(ones({2, 6})).sum());
    for (const bool writes : {false, true}) {
      auto whole = accelerator.full_parameters(model, {.write_back = writes});
      EXPECT_THAT(usage_error([&, &optimizer = optimizer] { optimizer.step(); }),
                  HasSubstr("are whole for a scope"));
      whole.end();
      EXPECT_EQ(values_of(net->parameters()), before);
    }
    optimizer.step();
    EXPECT_NE(values_of(net->parameters()), before);
  });
}

// A graph of before must not go on with other values, whichever rank it is on.
TEST_F(ZeroCalls, ThatWriteParametersOnOneRankCountAsWritesOnAll) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(zero(3));
    auto net = std::make_shared<Mlp>(40);
    auto model = accelerator.prepare(net);
    const auto before = net->first->weight._version();
    auto whole = accelerator.full_parameters(model, {.write_back = true, .from_rank = 0});
    if (rank.rank == 0) {
      const torch::NoGradGuard no_grad;
      net->first->weight.mul_(2);
    }
    whole.end();
    EXPECT_GT(net->first->weight._version(), before);
  });
}

TEST_F(ZeroCalls, OfZeroGradForgiveAPassOfThisRankAlone) {
  run(2, [](const Rank&) {
    std::vector<AcceleratorOptions> all{on_cpu()};
    for (const int stage : zero_stages()) all.push_back(zero(stage));
    for (const AcceleratorOptions& options : all) {
      Accelerator accelerator(options);
      auto net = std::make_shared<Mlp>(40);
      net->first->bias.set_requires_grad(false);
      std::vector<at::Tensor> trained;
      for (const at::Tensor& parameter : net->parameters()) {
        if (parameter.requires_grad()) trained.push_back(parameter);
      }
      auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(trained, 0.1));
      model(ones({2, 6})).sum().backward();
      optimizer.zero_grad();
      EXPECT_NO_THROW((void)model(ones({2, 6})));
    }
  });
}

TEST_F(ZeroCalls, OfPrepareSayThatParametersLiveInShardsAlready) {
  run(2, [](const Rank&) {
    auto net = std::make_shared<Mlp>(40);
    const auto refused = AllOf(HasSubstr("'first.weight' is in pieces on several ranks already"),
                               HasSubstr("build the module anew"));
    {
      Accelerator accelerator(zero(3));
      auto model = accelerator.prepare(net);
      Accelerator other(zero(3));
      EXPECT_THAT(usage_error([&] { (void)other.prepare(net); }), refused);
      accelerator.free_memory();
      EXPECT_THAT(usage_error([&] { (void)accelerator.prepare(net); }), refused);
    }
    for (const int stage : {1, 2}) {
      Accelerator other(zero(stage));
      EXPECT_THAT(usage_error([&] { (void)other.prepare(net); }), refused);
    }
  });
}

TEST_F(ZeroCalls, OfPrepareRefuseTwoParametersInOneMemory) {
  struct TiedByMemory : torch::nn::Module {
    TiedByMemory()
        : in(register_parameter("in", torch::randn({6, 20}, test_device()))),
          out(register_parameter("out", in.detach())) {}
    at::Tensor forward(const at::Tensor& input) { return input.matmul(in).matmul(out.t()); }
    at::Tensor in, out;
  };
  run(2, [](const Rank&) {
    for (const int stage : zero_stages()) {
      Accelerator accelerator(zero(stage));
      EXPECT_THAT(usage_error([&] { (void)accelerator.prepare(std::make_shared<TiedByMemory>()); }),
                  AllOf(HasSubstr("'in' and 'out' are two parameters in the same memory"),
                        HasSubstr("register one tensor under both names")));
    }
  });
}

TEST_F(ZeroCalls, OfBackwardOnALossItselfAddToAveragedGradientsInNoSync) {
  run(2, [](const Rank& rank) {
    const auto train = [&](const AcceleratorOptions& options, bool bypasses) {
      Accelerator accelerator(options);
      torch::manual_seed(1);
      auto net = std::make_shared<Branches>();
      auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
      const at::Tensor input = ones({2, 6}) * (rank.rank + 1);
      accelerator.backward(model(input, "abc").square().sum());
      {
        const auto local = accelerator.no_sync(model);
        for (const char* used : {"a", "ab"}) {
          const at::Tensor loss = model(input, used).square().sum();
          if (bypasses) loss.backward();
        }
        if (bypasses) accelerator.backward(model(input, "b").square().sum());
      }
      if (bypasses) accelerator.backward(model(input, "abc").square().sum());
      optimizer.step();
      return values_of(net->parameters());
    };
    for (const bool bypasses : {false, true}) {
      const std::vector<double> expected = train(on_cpu(with_unused()), bypasses);
      for (const int stage : zero_stages()) {
        EXPECT_TRUE(near(train(zero(stage, with_unused()), bypasses), expected, 1e-6))
            << "stage " << stage << (bypasses ? ", with passes of its own" : "");
      }
    }
  });
}

// On each rank some gradients are pieces, and others those of this rank alone.
TEST_F(ZeroCalls, OfSaveStateLeaveGradientsAsTheyAre) {
  run(2, [&](const Rank& rank) {
    const auto train = [&](const AcceleratorOptions& options, const std::string& saved) {
      Accelerator accelerator(options);
      torch::manual_seed(1);
      auto net = std::make_shared<Branches>();
      auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
      const at::Tensor input = ones({2, 6}) * (rank.rank + 1);
      accelerator.backward(model(input, "ab").square().sum());
      {
        const auto local = accelerator.no_sync(model);
        accelerator.backward(model(input, rank.rank == 0 ? "b" : "a").square().sum());
      }
      if (!saved.empty()) accelerator.save_state(folder / saved, {.gradients = true});
      accelerator.backward(model(input, "abc").square().sum());
      optimizer.step();
      return values_of(net->parameters());
    };
    const auto resume = [&](const AcceleratorOptions& options, const std::string& saved) {
      Accelerator accelerator(options);
      auto net = std::make_shared<Branches>();
      auto [model, optimizer] = accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
      accelerator.load_state(folder / saved);
      accelerator.backward(model(ones({2, 6}) * (rank.rank + 1), "abc").square().sum());
      optimizer.step();
      return values_of(net->parameters());
    };
    const std::vector<double> expected = train(on_cpu(with_unused()), "");
    EXPECT_TRUE(near(train(zero(2), ""), expected, 1e-6));
    EXPECT_TRUE(near(train(zero(2), "mixed"), expected, 1e-6));
    EXPECT_TRUE(near(resume(zero(2), "mixed"), expected, 1e-6));
    EXPECT_TRUE(near(resume(on_cpu(with_unused()), "mixed"), expected, 1e-6));
  });
}

}  // namespace
}  // namespace accelerate::test
