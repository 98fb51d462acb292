// Steps of the optimizer that was given to prepare(), with gradients that no step may use yet.
#include "multiproc/training/own_steps.h"

#include <limits>
#include <map>

#include "multiproc/state_folder.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

INSTANTIATE_TEST_SUITE_P(Ranks, OwnStepsOn, testing::Values(1, 2),
                         [](const auto& info) { return std::to_string(info.param); });

constexpr const char* kEarlyStep =
    "step() was called on the optimizer given to prepare() while its gradients were still being "
    "accumulated";

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

}  // namespace
}  // namespace accelerate::test
