// Optimizers of classes that the library does not know.
#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct StateOptimizers : Ranks {
  StateFolder folder;
};

// Counts its steps, and takes smaller ones from step to step.
class Decaying : public torch::optim::Optimizer {
 public:
  explicit Decaying(std::vector<at::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}

  at::Tensor step(LossClosure = nullptr) override {
    const at::NoGradGuard no_grad;
    ++steps;
    for (at::Tensor& parameter : param_groups()[0].params()) {
      if (parameter.grad().defined()) {
        parameter.add_(parameter.grad(), -0.1 / static_cast<double>(steps));
      }
    }
    return {};
  }

  int64_t steps = 0;
};

// The same, and it can say what it keeps.
struct Speaking : Decaying {
  using Decaying::Decaying;
  StateDict state_dict() const { return {{"steps", steps}}; }
  void load_state_dict(const StateDict& state) { steps = state.at("steps").as_integer(); }
};

template <class Model, class Optimizer>
void train(Accelerator& accelerator, Model& model, Optimizer& optimizer, int begin, int end) {
  for (int step = begin; step < end; ++step) {
    const StepData data = data_of_step(step, kRows);
    accelerator.backward(loss_of(model(data.input), data.target));
    optimizer.step();
    optimizer.zero_grad();
  }
}

TEST_F(StateOptimizers, AnUnknownClassIsRefusedWithWhatToDo) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    Decaying own(net->parameters());
    auto [model, optimizer] = accelerator.prepare(net, own);
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.save_state(folder / "state"); }),
                AllOf(HasSubstr("optimizer 0"), HasSubstr("Decaying"),
                      HasSubstr("register_for_checkpointing()")));
    EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  });
}

TEST_F(StateOptimizers, ARegisteredOneGoesOnWhereItStood) {
  run(2, [&](const Rank&) {
    std::vector<double> end;
    const auto known = [](Mlp& net) { return torch::optim::SGD(net.parameters(), 0.0); };
    {
      Accelerator accelerator(on_cpu());
      torch::manual_seed(1);
      auto net = std::make_shared<Mlp>();
      Speaking own(net->parameters());
      torch::optim::SGD other = known(*net);
      auto [model, optimizer, second] = accelerator.prepare(net, own, other);
      accelerator.register_for_checkpointing(own);
      train(accelerator, model, optimizer, 0, 3);
      accelerator.save_state(folder / "state");
      train(accelerator, model, optimizer, 3, 6);
      end = flat(net->parameters());
    }
    EXPECT_TRUE(std::filesystem::exists(folder / "state" / "optimizer.bin"));
    EXPECT_FALSE(std::filesystem::exists(folder / "state" / "optimizer_1.bin"));
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    Speaking own(net->parameters());
    torch::optim::SGD other = known(*net);
    auto [model, optimizer, second] = accelerator.prepare(net, own, other);
    accelerator.register_for_checkpointing(own);
    accelerator.load_state(folder / "state");
    EXPECT_EQ(own.steps, 3);
    EXPECT_EQ(optimizer.step_count(), 3);
    train(accelerator, model, optimizer, 3, 6);
    EXPECT_EQ(flat(net->parameters()), end);
  });
}

TEST_F(StateOptimizers, FunctionsMaySpeakForOne) {
  run(1, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    Decaying own(net->parameters());
    auto [model, optimizer] = accelerator.prepare(net, own);
    accelerator.register_for_checkpointing(CheckpointFunctions{
        .state_dict =
            [&] {
              return StateDict{{"steps", own.steps}};
            },
        .load_state_dict =
            [&](const StateDict& state) { own.steps = state.at("steps").as_integer(); },
        .optimizer = &own});
    train(accelerator, model, optimizer, 0, 2);
    accelerator.save_state(folder / "state");
    own.steps = 9;
    accelerator.load_state(folder / "state");
    EXPECT_EQ(own.steps, 2);
  });
}

}  // namespace
}  // namespace accelerate::test
