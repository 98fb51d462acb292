// What users may do between a pass and its step: what looks like a step of their own but is not.
#include <limits>

#include "multiproc/state_folder.h"
#include "multiproc/training/own_steps.h"

namespace accelerate::test {
namespace {

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

}  // namespace
}  // namespace accelerate::test
