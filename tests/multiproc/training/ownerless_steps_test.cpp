// Steps of optimizers that were never prepared, on prepared models.
#include "multiproc/state_folder.h"
#include "multiproc/training/own_steps.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

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
