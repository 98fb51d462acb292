// Steps of the optimizer that was given to prepare(), with gradients that no step may use yet.
#include <limits>
#include <map>

#include "multiproc/accumulation.h"
#include "multiproc/state_folder.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct OwnStepsOn : AccumulationOn {};
INSTANTIATE_TEST_SUITE_P(Ranks, OwnStepsOn, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

constexpr const char* kScaledStep =
    "step() was called on the optimizer given to prepare() while its gradients were still "
    "multiplied "
    "by the scale of the loss";
constexpr const char* kEarlyStep =
    "step() was called on the optimizer given to prepare() while its gradients were still being "
    "accumulated";

AcceleratorOptions scaled(double scale = 1024) {
  AcceleratorOptions options = on_cpu();
  options.mixed_precision = "fp16";
  options.grad_scaler.init_scale = scale;
  return options;
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names{"sgd",   "decay",   "momentum", "adam",
                                              "adamw", "adagrad", "rmsprop"};
  return names;
}

std::shared_ptr<torch::optim::Optimizer> optimizer_named(const std::string& name,
                                                         const std::vector<at::Tensor>& of) {
  namespace optim = torch::optim;
  if (name == "decay") {
    return std::make_shared<optim::SGD>(of, optim::SGDOptions(0.1).weight_decay(0.3));
  }
  if (name == "momentum") {
    return std::make_shared<optim::SGD>(of, optim::SGDOptions(0.1).momentum(0.9));
  }
  if (name == "adam") return std::make_shared<optim::Adam>(of, 0.1);
  if (name == "adamw") return std::make_shared<optim::AdamW>(of, 0.1);
  if (name == "adagrad") return std::make_shared<optim::Adagrad>(of, 0.1);
  if (name == "rmsprop") return std::make_shared<optim::RMSprop>(of, 0.1);
  return std::make_shared<optim::SGD>(of, 0.1);
}

// A prepared model and optimizer, beside what they were made of.
struct Prepared {
  explicit Prepared(const AcceleratorOptions& options, const std::string& name = "sgd")
      : accelerator(options),
        net(fresh_net()),
        own(optimizer_named(name, net->parameters())),
        model(accelerator.prepare(net)),
        optimizer(accelerator.prepare(own)) {}

  void backward(double factor = 1) {
    const StepData data = data_of_step(1, 2);
    accelerator.backward(loss_of(model(data.input), data.target) * factor);
  }
  void step() {
    backward();
    optimizer.step();
    optimizer.zero_grad();
  }

  Accelerator accelerator;
  std::shared_ptr<Mlp> net;
  std::shared_ptr<torch::optim::Optimizer> own;
  PreparedModel<Mlp> model;
  PreparedOptimizer optimizer;
};

TEST_P(OwnStepsOn, OneByScaledGradientsIsRefusedAtTheNextPreparedCall) {
  const StateFolder folder;
  const std::filesystem::path unused = folder / "unused";
  run_ranks([&](const Rank& rank) {
    const std::map<std::string, std::function<void(Prepared&)>> calls{
        {"step", [](Prepared& it) { it.optimizer.step(); }},
        {"zero_grad", [](Prepared& it) { it.optimizer.zero_grad(); }},
        {"zero_grad ", [](Prepared& it) { it.model.zero_grad(); }},
        {"backward", [](Prepared& it) { it.backward(); }},
        {"clip_grad_norm_",
         [](Prepared& it) { it.accelerator.clip_grad_norm_(it.model.parameters(), 1); }},
        {"save_state", [&](Prepared& it) { it.accelerator.save_state(unused); }}};
    for (const std::string& name : optimizer_names()) {
      for (const auto& [called, call] : calls) {
        Prepared it(scaled(), name);
        it.step();  // as it should be
        it.backward();
        it.own->step();
        if (called == "backward") it.own->zero_grad();  // the gradients themselves are gone
        // All ranks of a save throw the error of the first.
        const int refusing = called == "save_state" ? 0 : rank.rank;
        const bool is_plain = name == "sgd" || name == "decay";
        // A GPU tells of plain SGD in the second pass; saves wait.
        const bool is_late = is_plain && tests_on_gpu() && called != "save_state";
        // A forward pass sees the others.
        const std::string where = is_late ? "backward"
                                  : called == "backward" && !is_plain
                                      ? "forward"
                                      : called.substr(0, called.find(' '));
        EXPECT_THAT(
            usage_error([&, &call = call] {
              call(it);
              for (int pass = 0; is_late && pass < 2; ++pass) {
                it.optimizer.zero_grad();  // clipping has left unscaled gradients
                it.backward();
              }
            }),
            AllOf(HasSubstr(kScaledStep), HasSubstr("[rank " + std::to_string(refusing) + " of "),
                  HasSubstr("at   " + where), HasSubstr("call step() of what prepare() returned")))
            << name << ", " << called;
      }
    }
    EXPECT_FALSE(std::filesystem::exists(unused));
  });
}

TEST_P(OwnStepsOn, OneInsideOfAWindowIsRefusedInTheNextMicroBatch) {
  run_ranks([](const Rank&) {
    for (const std::string& name : optimizer_names()) {
      for (const bool zeroes : {false, true}) {
        Prepared it(accumulating({.steps = 3}), name);
        int micro_batches = 0;
        EXPECT_THAT(usage_error([&] {
                      for (int i = 0; i < 3; ++i) {
                        const auto micro_batch = it.accelerator.accumulate(it.model);
                        ++micro_batches;
                        it.backward();
                        it.own->step();
                        if (zeroes) it.own->zero_grad();
                      }
                    }),
                    HasSubstr(kEarlyStep))
            << name;
        EXPECT_LE(micro_batches, tests_on_gpu() ? 3 : 2) << name;
      }
    }
  });
}

TEST_P(OwnStepsOn, OneInsideOfAWindowIsRefusedWhereGradientsAreClipped) {
  run_ranks([](const Rank&) {
    Prepared it(accumulating({.steps = 3}), "adamw");
    const auto micro_batch = it.accelerator.accumulate(it.model);
    it.backward();
    it.own->step();
    EXPECT_THAT(usage_error([&] { it.accelerator.clip_grad_norm_(it.model.parameters(), 1); }),
                AllOf(HasSubstr(kEarlyStep), HasSubstr("at   clip_grad_norm_")));
  });
}

// As a loop does that was not ported; a window refuses to lose its gradients so.
TEST_P(OwnStepsOn, OneIsSeenAlsoIfItsGradientsWereThenSetToZeroInPlace) {
  const StateFolder folder;
  run_ranks([&](const Rank&) {
    for (const std::string& name : optimizer_names()) {
      Prepared it(scaled(), name);
      it.step();
      it.backward();
      it.own->step();
      it.own->zero_grad(/*set_to_none=*/false);
      EXPECT_THAT(usage_error([&] { it.accelerator.save_state(folder / "unused"); }),
                  HasSubstr(kScaledStep))
          << name;
    }
  });
}

TEST_P(OwnStepsOn, OneAfterTheLastBatchIsRefusedAtTheEndOfThePass) {
  run_ranks([](const Rank& rank) {
    for (const std::string name : {"sgd", "adamw"}) {
      Prepared it(scaled(), name);
      const StepData data = host_data_of_step(1, 2 * rank.world_size);
      auto loader = it.accelerator.prepare(
          data_loader(TensorDataset(data.input, data.target), {.batch_size = 2}));
      int batches = 0;
      EXPECT_THAT(usage_error([&] {
                    for (auto& batch : loader) {
                      it.accelerator.backward(loss_of(it.model(batch.data), batch.target));
                      it.own->step();
                      ++batches;
                    }
                  }),
                  HasSubstr(kScaledStep));
      EXPECT_EQ(batches, 1);
    }
  });
}

// One number alone, and one that overflows.
TEST_P(OwnStepsOn, OneOfASingleParameterIsSeenToo) {
  run_ranks([](const Rank&) {
    for (const double factor : {1.0, std::numeric_limits<double>::infinity()}) {
      Accelerator accelerator(scaled());
      auto net =
          std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(1, 1).bias(false));
      torch::optim::SGD sgd(net->parameters(), 0.1);
      auto [model, optimizer] = accelerator.prepare(net, sgd);
      accelerator.backward(model(ones({1, 1})).sum() * factor);
      sgd.step();
      EXPECT_THAT(usage_error([&, &model = model, &optimizer = optimizer] {
                    optimizer.step();
                    for (int pass = 0; pass < 2; ++pass) {  // a GPU tells here
                      accelerator.backward(model(ones({1, 1})).sum());
                    }
                  }),
                  HasSubstr(kScaledStep));
    }
  });
}

// Trains three updates of two micro-batches; `change` runs between each backward pass and its step.
template <class Change>
std::vector<double> trained(const AcceleratorOptions& options, const std::string& name,
                            Change change) {
  Prepared it(options, name);
  for (int update = 0; update < 3; ++update) {
    for (int64_t i = 0; i < it.accelerator.gradient_accumulation_steps(); ++i) {
      const auto micro_batch = it.accelerator.accumulate(it.model);
      it.backward();
      change(it);
      it.optimizer.step();
      change(it);
      it.optimizer.zero_grad();
      change(it);
    }
  }
  return flat(it.net->parameters());
}

std::vector<AcceleratorOptions> watched() {
  AcceleratorOptions both = scaled();
  both.gradient_accumulation.steps = 2;
  return {scaled(), accumulating({.steps = 2}), both};
}

// Each by the parameters and by their .data(), which leaves no trace.
TEST_P(OwnStepsOn, ChangesByTheUserStayLegal) {
  run_ranks([](const Rank&) {
    for (const AcceleratorOptions& options : watched()) {
      for (const std::string& name : optimizer_names()) {
        for (const bool in_the_open : {false, true}) {
          trained(options, name, [&](Prepared& it) {
            const torch::NoGradGuard no_grad;
            for (at::Tensor& parameter : it.net->parameters()) {
              at::Tensor values = in_the_open ? parameter : parameter.data();
              values.clamp_(-0.3, 0.3);
              values.mul_(0.999);
              // Up the gradient, as a search for sharp minima goes.
              if (parameter.grad().defined()) values.add_(parameter.grad(), 1e-5);
            }
          });
        }
      }
    }
  });
}

// Evaluation with other weights, which are put in place and taken away again.
TEST_P(OwnStepsOn, WeightsMayBeExchangedForAWhile) {
  run_ranks([](const Rank&) {
    for (const AcceleratorOptions& options : watched()) {
      const auto nothing = [](Prepared&) {};
      const auto expected = trained(options, "sgd", nothing);
      EXPECT_EQ(trained(options, "sgd",
                        [](Prepared& it) {
                          const torch::NoGradGuard no_grad;
                          std::vector<at::Tensor> own;
                          for (const at::Tensor& parameter : it.net->parameters()) {
                            own.push_back(parameter.clone());
                            parameter.data().mul_(0.9);
                          }
                          (void)it.model(ones({2, 6}));
                          for (size_t i = 0; i < own.size(); ++i) {
                            it.net->parameters()[i].data().copy_(own[i]);
                          }
                        }),
                expected);
    }
  });
}

TEST_P(OwnStepsOn, WeightsMayBeLoadedInsideOfAWindow) {
  const StateFolder folder;
  run_ranks([&](const Rank& rank) {
    const std::string file = (folder / "net.pt").string();
    if (rank.rank == 0) torch::save(fresh_net(), file);
    for (const AcceleratorOptions& options : watched()) {
      Accelerator(options).wait_for_everyone();
      for (const std::string& name : optimizer_names()) {
        trained(options, name, [&](Prepared& it) {
          if (!it.accelerator.sync_gradients()) torch::load(it.net, file);
        });
      }
    }
  });
}

TEST_P(OwnStepsOn, StepsOfTheConvertedOptimizerAreThoseOfThePreparedOne) {
  run_ranks([](const Rank&) {
    for (const AcceleratorOptions& options : watched()) {
      for (const std::string& name : optimizer_names()) {
        Prepared it(options, name);
        torch::optim::Optimizer& converted = it.optimizer;
        for (int i = 0; i < 6; ++i) {
          const auto micro_batch = it.accelerator.accumulate(it.model);
          it.backward();
          converted.step();
          converted.zero_grad();
        }
        EXPECT_EQ(it.optimizer.step_count(), 6 / it.accelerator.gradient_accumulation_steps());
      }
    }
  });
}

TEST_P(OwnStepsOn, UpdatesThatOverflowAreSkippedAsEver) {
  run_ranks([](const Rank&) {
    for (const std::string& name : optimizer_names()) {
      Prepared it(scaled(), name);
      for (const double factor : {1.0, std::numeric_limits<double>::infinity(), 1.0}) {
        it.backward(factor);
        (void)it.optimizer.step_count();
        it.optimizer.step();
        it.backward();  // for its gradients alone
        it.optimizer.zero_grad();
      }
      EXPECT_EQ(it.optimizer.step_count(), 2) << name;
    }
  });
}

// Whoever catches the error must not train on, or save, parameters that have moved.
TEST_P(OwnStepsOn, OneThatWasFoundStaysRefusedUntilALoadSucceeds) {
  const StateFolder folder;
  run_ranks([&](const Rank&) {
    for (const std::string name : {"sgd", "adamw"}) {
      Prepared it(scaled(), name);
      it.step();
      it.accelerator.save_state(folder / name);
      it.backward();
      it.own->step();
      const std::filesystem::path unused = folder / "unused";
      const std::vector<std::function<void()>> calls{
          [&] { it.accelerator.save_state(unused); },
          [&] { it.accelerator.save_model(it.model, unused); },
          [&] {
            it.model(ones({2, 6}));
          },
          [&] { it.accelerator.backward(it.net->first->bias.sum()); },
          [&] { it.optimizer.step(); },
          [&] { it.optimizer.zero_grad(); },
          [&] { it.accelerator.load_state(folder / "missing"); },
          [&] { it.accelerator.save_state(unused); }};
      for (size_t i = 0; i < calls.size(); ++i) {
        if (i == 6) {
          EXPECT_THROW(calls[i](), CheckpointError);
        } else {
          EXPECT_THAT(usage_error(calls[i]), HasSubstr(kScaledStep)) << name << ", call " << i;
        }
      }
      EXPECT_FALSE(std::filesystem::exists(unused));
      it.accelerator.load_state(folder / name);
      it.step();
      EXPECT_EQ(it.optimizer.step_count(), 2);
    }
  });
}

// Several times: a new gradient often gets the address of the one that was dropped.
TEST_F(Ranks, AnOwnStepByGradientsOfTheUsersOwnPassIsLegal) {
  run(1, [](const Rank&) {
    for (const std::string& name : optimizer_names()) {
      for (const bool to_none : {true, false}) {
        Prepared it(scaled(), name);
        for (int i = 0; i < 10; ++i) {
          it.backward();
          it.own->zero_grad(to_none);
          loss_of(it.net->forward(ones({2, 6})), ones({2, 3})).backward();
          it.own->step();
          EXPECT_NO_THROW(it.optimizer.zero_grad()) << name << ", to none: " << to_none;
        }
        it.step();
      }
    }
  });
}

// Gradients that are whole and unscaled are those that a step of its own expects.
TEST_P(OwnStepsOn, OneByFinishedGradientsIsTheUsersAffair) {
  run_ranks([](const Rank& rank) {
    for (const std::string& name : optimizer_names()) {
      Prepared it(scaled(), name);
      it.backward();
      it.accelerator.unscale_gradients(it.optimizer);
      it.own->step();
      it.optimizer.zero_grad();
      it.step();
      if (rank.world_size > 1) continue;
      it.backward();
      it.optimizer.zero_grad();
      loss_of(it.net->forward(ones({2, 6})), ones({2, 3})).backward();  // bypasses the scale
      it.own->step();
      it.own->zero_grad();
      it.step();
    }
  });
}

// A prepared model whose optimizer was forgotten.
struct Forgotten {
  explicit Forgotten(const AcceleratorOptions& options, const std::string& name = "sgd")
      : accelerator(options),
        net(fresh_net()),
        own(optimizer_named(name, net->parameters())),
        model(accelerator.prepare(net)) {}

  void backward() {
    const StepData data = data_of_step(1, 2);
    accelerator.backward(loss_of(model(data.input), data.target));
  }

  Accelerator accelerator;
  std::shared_ptr<Mlp> net;
  std::shared_ptr<torch::optim::Optimizer> own;
  PreparedModel<Mlp> model;
};

constexpr const char* kForgotten =
    "an optimizer that was not given to prepare() has updated a prepared model while its gradients "
    "were still ";

TEST_P(OwnStepsOn, OneOfAnOptimizerThatWasNotPreparedIsRefused) {
  const StateFolder folder;
  run_ranks([&](const Rank&) {
    for (const bool scales : {true, false}) {
      for (const std::string& name : optimizer_names()) {
        for (const std::string where : {"backward", "save_state", "save_model", "zero_grad"}) {
          for (const bool to_none : {true, false}) {
            Forgotten it(scales ? scaled() : accumulating({.steps = 2}), name);
            const auto micro_batch = it.accelerator.accumulate(it.model);
            it.backward();
            it.own->step();
            if (scales || to_none) it.own->zero_grad(to_none);
            EXPECT_THAT(
                usage_error([&] {
                  if (where == "save_state") it.accelerator.save_state(folder / "state");
                  if (where == "save_model") it.accelerator.save_model(it.model, folder / "model");
                  if (where == "zero_grad") it.model.zero_grad();
                  for (int pass = 0; pass < 2; ++pass) it.backward();  // a GPU tells here
                }),
                AllOf(HasSubstr(kForgotten), HasSubstr(scales ? "multiplied by" : "accumulated"),
                      HasSubstr("give the optimizer to prepare()")))
                << name << ", " << where;
          }
        }
      }
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "state"));
    EXPECT_FALSE(std::filesystem::exists(folder / "model"));
  });
}

// Neither finished gradients nor those that the scaler of the accelerator has unscaled.
TEST_P(OwnStepsOn, AnOptimizerThatWasNotPreparedMayUseFinishedGradients) {
  run_ranks([](const Rank&) {
    for (const std::string& name : optimizer_names()) {
      Forgotten plain(on_cpu(), name);
      Forgotten half(scaled(), name);
      for (int step = 0; step < 3; ++step) {
        plain.backward();
        plain.own->step();
        plain.own->zero_grad();
        half.backward();
        half.accelerator.scaler()->step(*half.own);
        half.accelerator.scaler()->update();
        half.own->zero_grad();
      }
    }
  });
}

TEST_P(OwnStepsOn, AModelWithoutAPreparedOptimizerIsToldOfOnce) {
  run_ranks([](const Rank&) {
    const auto told = [](auto& it) {
      testing::internal::CaptureStderr();
      for (int pass = 0; pass < 2; ++pass) it.backward();
      const std::string text = testing::internal::GetCapturedStderr();
      const size_t first = text.find("no prepared optimizer holds its parameters");
      EXPECT_EQ(text.find("no prepared optimizer holds", first + 1), std::string::npos) << text;
      return first != std::string::npos;
    };
    Forgotten half(scaled()), plain(on_cpu());
    Prepared prepared(scaled());
    EXPECT_TRUE(told(half));
    EXPECT_FALSE(told(plain));
    EXPECT_FALSE(told(prepared));
  });
}

TEST_P(OwnStepsOn, AModelWithoutAnOptimizerMayBeChanged) {
  run_ranks([](const Rank&) {
    Forgotten it(scaled());
    for (int pass = 0; pass < 3; ++pass) {
      it.backward();
      const torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : it.net->parameters()) parameter.data().mul_(0.999);
      it.model.zero_grad();
    }
  });
}

}  // namespace
}  // namespace accelerate::test
