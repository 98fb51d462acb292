// Which flat parameters have gradients, and what an update leaves behind: as without flat.
#include <ATen/ATen.h>

#include "core/capture_warmup.h"
#include "device/replay_actions.h"
#include "multiproc/accumulation.h"
#include "residency/flat_unit.h"
#include "strategy/flat/flat_model.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct FlatGradients : Ranks {};

// The flat way last.
std::vector<AcceleratorOptions> plain_and_flat(AcceleratorOptions options = on_cpu()) {
  options.ddp.find_unused_parameters = true;
  AcceleratorOptions with_flat = options;
  with_flat.flat = FlatOptions{.dtype = at::kFloat};
  return {options, with_flat};
}

// To the bit on CPUs, where both ways make the same calls of libtorch.
testing::AssertionResult alike(const std::vector<double>& one, const std::vector<double>& other) {
  return near(one, other, tests_on_gpu() ? 1e-4 : 0);
}

std::shared_ptr<torch::optim::Optimizer> decaying(const std::string& name,
                                                  const std::vector<at::Tensor>& of) {
  using namespace torch::optim;
  if (name == "sgd") return std::make_shared<SGD>(of, SGDOptions(0.1).weight_decay(0.1));
  if (name == "momentum") {
    return std::make_shared<SGD>(of, SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
  }
  return std::make_shared<AdamW>(of, AdamWOptions(0.02).weight_decay(0.1));
}

std::shared_ptr<Branches> fresh_branches() {
  torch::manual_seed(3);
  return std::make_shared<Branches>();
}

// Which of the parameters have a gradient.
std::vector<bool> present(const torch::nn::Module& module) {
  std::vector<bool> all;
  for (const at::Tensor& parameter : module.parameters()) all.push_back(parameter.grad().defined());
  return all;
}

at::Tensor loss_of_step(int step, const at::Tensor& output) {
  return output.square().sum() * (1.0 + step);
}

at::Tensor input_of_step(int step, int rank) {
  return data_of_step(step, 2 * kRows).input.narrow(0, rank * kRows, kRows);
}

TEST_F(FlatGradients, BranchesThatALossLeavesOutAreLeftAlone) {
  for (const int ranks : {1, 2}) {
    run(ranks, [](const Rank& rank) {
      for (const std::string name : {"adamw", "sgd", "momentum"}) {
        std::vector<std::vector<double>> trained;
        std::vector<std::vector<bool>> had;
        for (const AcceleratorOptions& options : plain_and_flat()) {
          Accelerator accelerator(options);
          auto net = fresh_branches();
          auto own = decaying(name, net->parameters());
          auto [model, optimizer] = accelerator.prepare(net, own);
          auto& seen = had.emplace_back();
          // What one rank reaches counts on all.
          const std::vector<std::pair<std::string, std::string>> used = {
              {"ab", "ab"}, {"a", "a"}, {"b", "a"}, {"abc", "abc"}, {"c", "b"}, {"a", "a"}};
          for (int step = 0; step < 6; ++step) {
            const auto& [first, second] = used[static_cast<size_t>(step)];
            const at::Tensor output =
                model(input_of_step(step, rank.rank), rank.rank == 0 ? first : second);
            accelerator.backward(loss_of_step(step, output));
            std::ranges::copy(present(*net), std::back_inserter(seen));
            accelerator.clip_grad_norm_(net->parameters(), 0.5);
            optimizer.step();
            optimizer.zero_grad();
          }
          trained.push_back(flat(net->parameters()));
        }
        EXPECT_TRUE(alike(trained[1], trained[0])) << name;
        EXPECT_EQ(had[1], had[0]) << name;
      }
    });
  }
}

// A window of accumulation brings together what any of its micro-batches has reached.
TEST_F(FlatGradients, AWindowReachesWhatAnyOfItsMicroBatchesReaches) {
  run(2, [](const Rank& rank) {
    AcceleratorOptions accumulating = on_cpu();
    accumulating.gradient_accumulation.steps = 2;
    std::vector<std::vector<double>> trained;
    for (const AcceleratorOptions& options : plain_and_flat(accumulating)) {
      Accelerator accelerator(options);
      auto net = fresh_branches();
      auto own = decaying("adamw", net->parameters());
      auto [model, optimizer] = accelerator.prepare(net, own);
      const std::vector<std::string> used = {"a", "b", "abc", "a", "c", "c"};
      for (int step = 0; step < 6; ++step) {
        const auto window = accelerator.accumulate(model);
        const at::Tensor output =
            model(input_of_step(step, rank.rank), used[static_cast<size_t>(step)]);
        accelerator.backward(loss_of_step(step, output));
        optimizer.step();
        optimizer.zero_grad();
      }
      trained.push_back(flat(net->parameters()));
    }
    EXPECT_TRUE(alike(trained[1], trained[0]));
  });
}

TEST_F(FlatGradients, AnOptimizerWithoutGradientsIsIdleUnderFp16) {
  for (const int ranks : {1, 2}) {
    run(ranks, [](const Rank& rank) {
      AcceleratorOptions scaled = on_cpu();
      scaled.mixed_precision = MixedPrecision::kFp16;
      scaled.grad_scaler.init_scale = 1024;
      std::vector<std::vector<double>> trained;
      for (const AcceleratorOptions& options : plain_and_flat(scaled)) {
        Accelerator accelerator(options);
        auto net = fresh_branches();
        auto of_a = decaying("adamw", net->a->parameters());
        auto of_b = decaying("adamw", net->b->parameters());
        auto [model, first, second] = accelerator.prepare(net, of_a, of_b);
        for (int step = 0; step < 4; ++step) {
          const bool both = step == 2;
          const at::Tensor output = model(input_of_step(step, rank.rank), both ? "ab" : "a");
          accelerator.backward(loss_of_step(step, output));
          accelerator.unscale_gradients();
          first.step();
          first.zero_grad();
          if (!both) continue;
          second.step();
          second.zero_grad();
        }
        trained.push_back(flat(net->parameters()));
      }
      EXPECT_TRUE(alike(trained[1], trained[0]));
    });
  }
}

TEST_F(FlatGradients, PartsThatAreFrozenBeforeOrLaterStayAsTheyAre) {
  run(1, [](const Rank&) {
    for (const std::string name : {"adamw", "momentum"}) {
      std::vector<std::vector<double>> trained;
      for (const AcceleratorOptions& options : plain_and_flat()) {
        Accelerator accelerator(options);
        auto net = fresh_branches();
        net->c->weight.set_requires_grad(false);
        auto own = decaying(name, net->parameters());
        auto [model, optimizer] = accelerator.prepare(net, own);
        for (int step = 0; step < 6; ++step) {
          for (const at::Tensor& parameter : net->b->parameters()) {
            parameter.set_requires_grad(step < 2 || step == 5);
          }
          accelerator.backward(loss_of_step(step, model(input_of_step(step, 0), "abc")));
          optimizer.step();
          optimizer.zero_grad();
        }
        trained.push_back(flat(net->parameters()));
      }
      EXPECT_TRUE(alike(trained[1], trained[0])) << name;
    }
  });
}

TEST_F(FlatGradients, ZeroGradOfEitherKindLeavesWhatTorchLeaves) {
  run(1, [](const Rank&) {
    for (const bool of_module : {true, false}) {
      for (const bool set_to_none : {true, false}) {
        std::vector<std::vector<double>> trained;
        std::vector<std::vector<bool>> had;
        for (const AcceleratorOptions& options : plain_and_flat()) {
          Accelerator accelerator(options);
          auto net = fresh_branches();
          auto own = decaying("adamw", net->parameters());
          auto [model, optimizer] = accelerator.prepare(net, own);
          auto& seen = had.emplace_back();
          for (int step = 0; step < 3; ++step) {
            const at::Tensor output = model(input_of_step(step, 0), step == 0 ? "abc" : "a");
            accelerator.backward(loss_of_step(step, output));
            optimizer.step();
            of_module ? net->zero_grad(set_to_none) : optimizer.zero_grad(set_to_none);
            std::ranges::copy(present(*net), std::back_inserter(seen));
          }
          trained.push_back(flat(net->parameters()));
        }
        EXPECT_TRUE(alike(trained[1], trained[0])) << of_module << set_to_none;
        EXPECT_EQ(had[1], had[0]) << of_module << set_to_none;
      }
    }
  });
}

// A second pass through a graph whose parameters an update has changed.
TEST_F(FlatGradients, AGraphOfBeforeAnUpdateIsRefused) {
  run(1, [](const Rank&) {
    std::vector<AcceleratorOptions> all = plain_and_flat();
    all.push_back(on_cpu());
    all.back().flat = FlatOptions{};
    all.back().mixed_precision = MixedPrecision::kBf16;
    all.push_back(all.back());
    all.back().flat->masters = false;
    int way = 0;
    for (const AcceleratorOptions& options : all) {
      Accelerator accelerator(options);
      auto net = fresh_net();
      auto own = decaying("adamw", net->parameters());
      auto [model, optimizer] = accelerator.prepare(net, own);
      const at::Tensor loss = model(ones({2, 6})).square().sum();
      accelerator.backward(loss, {.retain_graph = true});
      accelerator.backward(loss, {.retain_graph = true});
      optimizer.step();
      std::string text;
      try {
        accelerator.backward(loss);
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
    AcceleratorOptions options = on_cpu();
    options.flat = FlatOptions{};
    options.mixed_precision = MixedPrecision::kBf16;
    Accelerator accelerator(options);
    auto net = fresh_branches();
    auto of_a = decaying("adamw", net->a->parameters());
    auto of_b = decaying("adamw", net->b->parameters());
    auto [model, first, second] = accelerator.prepare(net, of_a, of_b);
    const at::Tensor input = ones({2, 6}).requires_grad_();
    const at::Tensor of_other = model(input, "b").square().sum();
    accelerator.backward(model(input, "a").square().sum());
    first.step();
    accelerator.backward(of_other);
    second.step();
  });
}

// Its first parameters are not updated then.
TEST_F(FlatGradients, AnOwnStepOfAPartOfTheParametersReachesTheModel) {
  run(1, [](const Rank&) {
    for (const std::string name : {"adamw", "momentum", "sgd"}) {
      AcceleratorOptions options = on_cpu();
      options.flat = FlatOptions{};
      options.mixed_precision = MixedPrecision::kBf16;
      Accelerator accelerator(options);
      auto net = fresh_branches();
      auto own = decaying(name, net->parameters());
      auto [model, optimizer] = accelerator.prepare(net, own);
      const auto unit = std::static_pointer_cast<FlatModel>(model.strategy())->unit();
      for (int step = 0; step < 2; ++step) {
        accelerator.backward(model(ones({2, 6}), "b").square().sum());
        const at::Tensor before = unit->values().clone();
        own->step();
        own->zero_grad();
        model(ones({2, 6}), "b");
        EXPECT_FALSE(torch::equal(unit->values(), before)) << name;
        EXPECT_TRUE(torch::equal(unit->values(), unit->masters().to(at::kBFloat16))) << name;
      }
    }
  });
}

// Plain SGD leaves no trace by which a second pass could tell that there was no update.
TEST_F(FlatGradients, APassOfBeforeAnotherPassIsNotRefused) {
  run(1, [](const Rank&) {
    for (const std::string name : {"adamw", "sgd"}) {
      AcceleratorOptions options = on_cpu();
      options.flat = FlatOptions{};
      options.mixed_precision = MixedPrecision::kBf16;
      Accelerator accelerator(options);
      auto net = fresh_net();
      auto own = decaying(name, net->parameters());
      auto [model, optimizer] = accelerator.prepare(net, own);
      for (int step = 0; step < 2; ++step) {
        const at::Tensor first = model(ones({2, 6})).square().sum();
        const at::Tensor second = model(ones({2, 6}) * 2).square().sum();
        accelerator.backward(first);
        accelerator.backward(second);
        optimizer.step();
        optimizer.zero_grad();
      }
    }
  });
}

// A replay runs no forward pass that would look.
TEST_F(FlatGradients, ValuesThatAreWrittenBetweenReplaysAreTakenOver) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.flat = FlatOptions{};
    options.mixed_precision = MixedPrecision::kBf16;
    Accelerator accelerator(options);
    auto net = fresh_net();
    auto own = decaying("adamw", net->parameters());
    auto [model, optimizer] = accelerator.prepare(net, own);
    const auto step = [&, &model = model, &optimizer = optimizer] {
      optimizer.zero_grad();
      accelerator.backward(model(ones({2, 6})).square().sum());
    };
    step();
    device::ReplayActions actions;
    {
      const device::ReplayActions::Scope recording(actions);
      step();
    }
    actions.run_before();
    actions.run_after();
    const auto unit = std::static_pointer_cast<FlatModel>(model.strategy())->unit();
    const at::Tensor& bias = net->second->bias;
    const at::Tensor other = unit->master(*unit->find(net->first->bias)).detach().clone();
    {
      const torch::NoGradGuard no_grad;
      bias.fill_(0.75);
    }
    ASSERT_TRUE(actions.holds());
    actions.run_before();
    EXPECT_TRUE(unit->master(*unit->find(bias)).eq(0.75).all().item<bool>());
    EXPECT_TRUE(torch::equal(unit->master(*unit->find(net->first->bias)), other));
    actions.run_after();
    net->to(at::kFloat);
    EXPECT_THAT(usage_error([&] { actions.run_before(); }), HasSubstr("flat vector"));
  });
}

// Each replay would write, and the masters know of the first write alone.
TEST_F(FlatGradients, ARecordedStepThatWritesToParametersIsRefused) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.flat = FlatOptions{};
    options.mixed_precision = MixedPrecision::kBf16;
    Accelerator accelerator(options);
    auto net = fresh_net();
    auto model = accelerator.prepare(net);
    device::ReplayActions actions;
    {
      const device::ReplayActions::Scope recording(actions);
      accelerator.backward(model(ones({2, 6})).square().sum());
      const torch::NoGradGuard no_grad;
      net->first->weight.clamp_(-0.1, 0.1);
    }
    for (int call = 0; call < 2; ++call) {
      EXPECT_THAT(usage_error([&] { actions.run_before(); }), HasSubstr("writes to parameters"));
    }
    accelerator.free_memory();
    EXPECT_THAT(usage_error([&] { actions.run_before(); }), HasSubstr("was released"));
  });
}

// On a rank that does not reach all, which of them others reach is not known inside a graph.
TEST_F(FlatGradients, APassThatReachesAPartIsNotRecordedOnSeveralRanks) {
  run(2, [](const Rank&) {
    Accelerator accelerator(plain_and_flat()[1]);
    auto net = fresh_branches();
    auto model = accelerator.prepare(net);
    device::ReplayActions actions;
    const device::KeptGradients kept;
    const device::ReplayActions::Scope recording(actions);
    accelerator.backward(model(ones({2, 6}), "abc").sum());
    model.zero_grad();
    EXPECT_THAT(usage_error([&] {
                  accelerator.backward(model(ones({2, 6}), "ac").sum());
                }),
                HasSubstr("does not reach 'b."));
  });
}

// Where hooks are made anew in each pass.
TEST_F(FlatGradients, PartsThatAreFrozenLaterNeedNoHooks) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(plain_and_flat()[1]);
    auto net = fresh_branches();
    auto own = decaying("adamw", net->parameters());
    auto [model, optimizer] = accelerator.prepare(net, own);
    const device::KeptGradients kept;
    std::vector<double> frozen;
    for (int step = 0; step < 4; ++step) {
      if (step == 2) {
        frozen = flat(net->b->parameters());
        for (const at::Tensor& parameter : net->b->parameters()) parameter.set_requires_grad(false);
      }
      accelerator.backward(loss_of_step(step, model(input_of_step(step, rank.rank), "abc")));
      optimizer.step();
      optimizer.zero_grad();
    }
    EXPECT_EQ(flat(net->b->parameters()), frozen);
  });
}

// The update of a recording is that of the parameters that had gradients then.
TEST_F(FlatGradients, AReplayWhoseGradientsWouldBeOthersDoesNotHold) {
  run(1, [](const Rank&) {
    Accelerator accelerator(plain_and_flat()[1]);
    auto net = fresh_branches();
    auto own = decaying("adamw", net->parameters());
    auto [model, optimizer] = accelerator.prepare(net, own);
    const auto pass = [&, &model = model](const std::string& used) {
      accelerator.backward(model(ones({2, 6}), used).sum());
    };
    const device::KeptGradients kept;
    for (const char* used : {"abc", "abc", "a"}) {  // what is recorded has been made before
      pass(used);
      optimizer.step();
      optimizer.zero_grad();
    }
    device::ReplayActions adds;  // to what is there
    {
      const device::ReplayActions::Scope recording(adds);
      pass("a");
      optimizer.step();
      optimizer.zero_grad();
    }
    device::ReplayActions starts_anew;
    {
      const device::ReplayActions::Scope recording(starts_anew);
      optimizer.zero_grad();
      pass("a");
      optimizer.step();
    }
    EXPECT_EQ(present(*net), (std::vector<bool>{true, true, false, false, false, false}));
    optimizer.zero_grad();
    EXPECT_TRUE(adds.holds());
    EXPECT_TRUE(starts_anew.holds());
    pass("b");
    EXPECT_FALSE(adds.holds());
    EXPECT_TRUE(starts_anew.holds());
    starts_anew.run_before();
    starts_anew.run_after();
    EXPECT_EQ(present(*net), (std::vector<bool>{true, true, false, false, false, false}));
  });
}

// Of libtorch's reducer, which averages buckets that it rebuilds first.
TEST(CaptureWarmup, StepsOfSeveralRanksWarmUpAsTheirBucketsNeed) {
  EXPECT_EQ(warmup_steps(3, /*ranks=*/1, /*flat=*/false), 3);
  EXPECT_EQ(warmup_steps(3, /*ranks=*/2, /*flat=*/false), 11);
  EXPECT_EQ(warmup_steps(20, /*ranks=*/2, /*flat=*/false), 20);
  EXPECT_EQ(warmup_steps(3, /*ranks=*/2, /*flat=*/true), 3);
}

// Nobody averages their gradients.
TEST_F(FlatGradients, ParametersOfNoModelAreComparedOverTheRanks) {
  run(2, [](const Rank& rank) {
    for (const AcceleratorOptions& options : plain_and_flat()) {
      Accelerator accelerator(options);
      auto net = fresh_net();
      const at::Tensor loose = torch::ones({3}, test_device()).requires_grad_();
      std::vector<at::Tensor> parameters = net->parameters();
      parameters.push_back(loose);
      auto own = decaying("adamw", parameters);
      auto [model, optimizer] = accelerator.prepare(net, own);
      const at::Tensor output = model(input_of_step(0, rank.rank)) * loose;
      accelerator.backward(output.sum());
      EXPECT_THAT(usage_error([&, &optimizer = optimizer] {
                    optimizer.step();
                    accelerator.wait_for_everyone();  // the rank that came first learns of it here
                  }),
                  HasSubstr("no prepared model holds this parameter"));
    }
  });
}

TEST_F(FlatGradients, GradientsThatWereAssignedAreComparedOverTheRanks) {
  run(2, [](const Rank& rank) {
    for (const AcceleratorOptions& options : plain_and_flat()) {
      Accelerator accelerator(options);
      auto net = fresh_net();
      auto own = decaying("adamw", net->parameters());
      auto [model, optimizer] = accelerator.prepare(net, own);
      for (at::Tensor& parameter : net->parameters()) {
        parameter.mutable_grad() = torch::full_like(parameter, rank.rank + 1.0);
      }
      EXPECT_THAT(usage_error([&, &optimizer = optimizer] {
                    optimizer.step();
                    accelerator.wait_for_everyone();  // the rank that came first learns of it here
                  }),
                  HasSubstr("has not averaged it since the last step"));
    }
  });
}

TEST_F(FlatGradients, AModuleThatOutlivesItsAcceleratorIsOrdinaryAgain) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.flat = FlatOptions{};
    options.mixed_precision = MixedPrecision::kBf16;
    const auto train = [&](Accelerator& accelerator, const std::shared_ptr<Mlp>& net,
                           const std::shared_ptr<torch::optim::Optimizer>& own) {
      auto [model, optimizer] = accelerator.prepare(net, own);
      accelerator.backward(model(ones({2, 6})).square().sum());
      optimizer.step();
      return flat({model.strategy()->master_of(net->first->weight)});
    };
    auto net = fresh_net();
    std::vector<double> exact;
    {
      Accelerator accelerator(options);
      exact = train(accelerator, net, decaying("adamw", net->parameters()));
      EXPECT_EQ(net->first->weight.scalar_type(), at::kBFloat16);
      const Accelerator moved(std::move(accelerator));
      EXPECT_EQ(net->first->weight.scalar_type(), at::kBFloat16);
    }
    EXPECT_EQ(net->first->weight.scalar_type(), at::kFloat);
    EXPECT_EQ(flat({net->first->weight}), exact);
    // The next accelerator finds what the last one has trained.
    Accelerator accelerator(options);
    auto other = fresh_net();
    train(accelerator, other, decaying("adamw", other->parameters()));
    accelerator = Accelerator(options);
    EXPECT_EQ(other->first->weight.scalar_type(), at::kFloat);
    auto model = accelerator.prepare(net);
    EXPECT_EQ(flat({model.strategy()->master_of(net->first->weight)}), exact);
  });
}

TEST_F(FlatGradients, APreparedModelThatOutlivesItsAcceleratorGoesOn) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.flat = FlatOptions{};
    options.mixed_precision = MixedPrecision::kBf16;
    auto net = fresh_net();
    auto own = decaying("adamw", net->parameters());
    std::optional<PreparedModel<Mlp>> model;
    {
      Accelerator accelerator(options);
      model = accelerator.prepare(net);
      auto optimizer = accelerator.prepare(own);
      accelerator.backward((*model)(ones({2, 6})).square().sum());
      optimizer.step();
    }
    EXPECT_TRUE((*model)(ones({2, 6})).isfinite().all().item<bool>());
    EXPECT_EQ(net->first->weight.scalar_type(), at::kBFloat16);
  });
}

}  // namespace
}  // namespace accelerate::test
