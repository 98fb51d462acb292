// Strategies of users: which of their calls come when.
#include "install/consumer/strategies/averaging_strategy.h"
#include "multiproc/state_folder.h"
#include "multiproc/strategy/own_strategy.h"
#include "support/error_of.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The calls of one strategy, and what its models keep in checkpoints.
struct Notes {
  std::vector<std::string> calls{};
  ExchangeState kept{};
  ExchangeState restored{};
  bool refuses_to_restore = false;
  std::optional<BackwardCall> backward{};
  size_t models_of_optimizer = 0;

  std::vector<std::string> take() { return std::exchange(calls, {}); }
};

class NotedModel final : public ModelStrategy, private ExchangeMemory {
 public:
  explicit NotedModel(std::shared_ptr<Notes> notes) : notes_(std::move(notes)) {}
  void before_backward(const at::Tensor&) override { notes_->calls.emplace_back("before pass"); }
  void after_backward() override { notes_->calls.emplace_back("after pass"); }
  void set_gradient_sync(GradientSync sync) override {
    ModelStrategy::set_gradient_sync(sync);
    notes_->calls.emplace_back(sync == GradientSync::kOn       ? "sync on"
                               : sync == GradientSync::kPaused ? "sync paused"
                                                               : "sync local");
  }
  void sync_next_backward() override { notes_->calls.emplace_back("sync next"); }
  void release() override { notes_->calls.emplace_back("release"); }
  ExchangeMemory* exchange_memory() override { return this; }
  std::unique_ptr<FullParameters::Held> hold_full(const FullParametersOptions&) override {
    notes_->calls.emplace_back("hold");
    return nullptr;
  }

 protected:
  void before_forward() override { notes_->calls.emplace_back("before forward"); }

 private:
  ExchangeState state() const override { return notes_->kept; }
  std::string check(const ExchangeState& state) const override {
    return state.own.contains("odd") ? "an odd thing" : "";
  }
  void restore(const ExchangeState& state) override {
    if (notes_->refuses_to_restore) throw std::runtime_error("no memory for it");
    notes_->restored = state;
  }

  std::shared_ptr<Notes> notes_;
};

class NotedOptimizer final : public OptimizerStrategy {
 public:
  NotedOptimizer(torch::optim::Optimizer& optimizer, std::shared_ptr<Notes> notes)
      : OptimizerStrategy(optimizer), notes_(std::move(notes)) {}
  void before_step() override { notes_->calls.emplace_back("before step"); }
  void after_step() override { notes_->calls.emplace_back("after step"); }

 private:
  std::shared_ptr<Notes> notes_;
};

class NotedStrategy final : public Strategy {
 public:
  explicit NotedStrategy(std::shared_ptr<Notes> notes) : notes_(std::move(notes)) {}
  std::string_view name() const override { return "noted"; }
  void place(torch::nn::Module& module, c10::Device device) override {
    note("place");
    Strategy::place(module, device);
  }
  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module>) override {
    note("wrap");
    return std::make_shared<NotedModel>(notes_);
  }
  std::unique_ptr<OptimizerStrategy> prepare_optimizer(
      const OptimizerPreparation& preparation) override {
    note("optimizer");
    notes_->models_of_optimizer = preparation.models.size();
    return std::make_unique<NotedOptimizer>(preparation.optimizer, notes_);
  }
  void before_backward(const BackwardCall& call) override {
    note("backward");
    notes_->backward = call;
  }
  at::Tensor grad_norm(at::TensorList parameters, const ClipNormOptions& options) override {
    note("norm");
    return Strategy::grad_norm(parameters, options) * 2;
  }
  at::Tensor clip_grad_norm_(at::TensorList parameters, double max_norm,
                             const ClipNormOptions& options) override {
    note("clip norm");
    return Strategy::clip_grad_norm_(parameters, max_norm, options) * 3;
  }
  void clip_grad_value_(at::TensorList parameters, double clip_value) override {
    note("clip value");
    Strategy::clip_grad_value_(parameters, clip_value);
  }
  void before_zero_grad(const std::vector<at::Tensor>& parameters) override {
    note("zero " + std::to_string(parameters.size()));
  }
  void require_sound(const char* where) override { note(std::string("sound: ") + where); }
  void at_end_of_pass(const char* where) override { note(where); }
  void before_save(const char* where, bool with_gradients) override {
    note(std::string("save: ") + where + (with_gradients ? " with gradients" : ""));
  }
  void after_save() override { note("saved"); }
  bool shares_buffers() const override { return true; }

 private:
  void note(std::string call) { notes_->calls.push_back(std::move(call)); }
  std::shared_ptr<Notes> notes_;
};

class NotedFactory final : public StrategyFactory {
 public:
  explicit NotedFactory(std::shared_ptr<Notes> notes) : notes_(std::move(notes)) {}
  std::unique_ptr<Strategy> make(const StrategyContext& context) const override {
    notes_->calls.push_back("make for " + std::to_string(context.ranks->world_size()) + " on " +
                            context.device.str());
    return std::make_unique<NotedStrategy>(notes_);
  }

 private:
  std::shared_ptr<Notes> notes_;
};

// An accelerator whose strategy says what it is asked.
struct Noted {
  explicit Noted(AcceleratorOptions options = on_cpu())
      : accelerator(with_noted(std::move(options), notes)) {}
  static AcceleratorOptions with_noted(AcceleratorOptions options,
                                       const std::shared_ptr<Notes>& notes) {
    options.strategy = std::make_shared<NotedFactory>(notes);
    return options;
  }

  std::shared_ptr<Notes> notes = std::make_shared<Notes>();
  Accelerator accelerator;
};

TEST_F(OwnStrategy, SeesModelsBeforeTheirOptimizersWhateverTheOrder) {
  run(1, [](const Rank&) {
    Noted noted;
    EXPECT_EQ(noted.accelerator.strategy_name(), "noted");
    EXPECT_THAT(noted.notes->take(),
                ElementsAre("make for 1 on " + noted.accelerator.device().str()));
    auto net = std::make_shared<Mlp>();
    auto other = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto prepared = noted.accelerator.prepare(sgd, unplaced(other), net);
    EXPECT_THAT(noted.notes->take(), ElementsAre("wrap", "place", "wrap", "optimizer"));
    EXPECT_EQ(noted.notes->models_of_optimizer, 1U);
    EXPECT_EQ(std::get<0>(prepared).parameters().size(), 4U);
    noted.accelerator.free_memory();
    EXPECT_THAT(noted.notes->take(), ElementsAre("release", "release"));
  });
}

TEST_F(OwnStrategy, LeavesModelsWhereTheyAreWithoutPlacement) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.device_placement = false;
    Noted noted(options);
    noted.notes->take();
    auto model = noted.accelerator.prepare(std::make_shared<Mlp>());
    EXPECT_THAT(noted.notes->take(), ElementsAre("wrap"));
  });
}

TEST_F(OwnStrategy, IsAskedAtEveryPointOfAStep) {
  run(1, [](const Rank&) {
    Noted noted;
    auto net = std::make_shared<Mlp>();
    auto [model, optimizer, loader] = noted.accelerator.prepare(
        net, torch::optim::SGD(net->parameters(), 0.1),
        data_loader(TensorDataset(torch::ones({2, 6}), torch::ones({2, 3})), {.batch_size = 2}));
    noted.notes->take();
    for (auto& batch : loader) {
      EXPECT_THAT(noted.notes->take(), ElementsAre("sound: loader: next batch"));
      const at::Tensor loss = loss_of(model(batch.data), batch.target);
      EXPECT_THAT(noted.notes->take(), ElementsAre("before forward"));
      noted.accelerator.backward(loss);
      EXPECT_THAT(noted.notes->take(), ElementsAre("backward", "before pass", "after pass"));
      EXPECT_EQ(noted.notes->backward->samples, 2);
      const double norm = noted.accelerator.grad_norm(net->parameters()).item<double>();
      const double before =
          noted.accelerator.clip_grad_norm_(net->parameters(), 1e6).item<double>();
      EXPECT_NEAR(before, 3 * norm, 1e-6);  // which asks for the norm itself
      noted.accelerator.clip_grad_value_(net->parameters(), 1e6);
      EXPECT_THAT(noted.notes->take(), ElementsAre("norm", "clip norm", "norm", "clip value"));
      optimizer.step();
      EXPECT_THAT(noted.notes->take(), ElementsAre("before step", "after step"));
      optimizer.zero_grad();
      model.zero_grad();
      EXPECT_THAT(noted.notes->take(), ElementsAre("zero 4", "zero 4"));
    }
    EXPECT_THAT(noted.notes->take(),
                ElementsAre("sound: loader: next batch", "the end of a pass over the data"));
  });
}

TEST_F(OwnStrategy, LearnsWhatABackwardPassIsMeantFor) {
  run(1, [](const Rank&) {
    Noted noted;
    auto first = std::make_shared<Mlp>();
    auto second = std::make_shared<Mlp>();
    auto [one, two] = noted.accelerator.prepare(first, second);
    const auto backward = [&, &one = one, &two = two](const BackwardOptions& options) {
      noted.accelerator.backward((one(ones({1, 6})) + two(ones({1, 6}))).sum(), options);
      return *noted.notes->backward;
    };
    const BackwardCall plain = backward({});
    EXPECT_FALSE(plain.is_weighted);
    EXPECT_FALSE(plain.samples.has_value());
    EXPECT_FALSE(plain.inputs.has_value());
    EXPECT_THAT(plain.models, ElementsAre(one.strategy(), two.strategy()));
    EXPECT_TRUE(backward({.weight = 3.0}).is_weighted);
    EXPECT_EQ(backward({.samples = 7}).samples, 7);
    const BackwardCall only = backward({.only = two});
    EXPECT_EQ(only.inputs->size(), 4U);
    EXPECT_THAT(only.models, ElementsAre(two.strategy()));
  });
}

TEST_F(OwnStrategy, IsToldWhetherGradientsMeet) {
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.gradient_accumulation = {.steps = 2};
    Noted noted(options);
    auto net = std::make_shared<Mlp>();
    auto [model, optimizer] =
        noted.accelerator.prepare(net, torch::optim::SGD(net->parameters(), 0.1));
    noted.notes->take();
    const auto step = [&, &optimizer = optimizer] {
      optimizer.step();
      return noted.notes->take();
    };
    {
      const auto window = noted.accelerator.accumulate(model);
      EXPECT_THAT(noted.notes->take(), ElementsAre("sync paused"));
      EXPECT_EQ(model.strategy()->gradient_sync(), GradientSync::kPaused);
      EXPECT_THAT(step(), IsEmpty());
    }
    EXPECT_THAT(noted.notes->take(), ElementsAre("sync on"));
    {
      const auto alone = noted.accelerator.no_sync(model);
      EXPECT_EQ(model.strategy()->gradient_sync(), GradientSync::kLocal);
      noted.accelerator.trigger_sync_in_backward(model);
    }
    EXPECT_THAT(noted.notes->take(), ElementsAre("sync local", "sync next", "sync on"));
    (void)noted.accelerator.full_parameters(model);
    EXPECT_THAT(noted.notes->take(), ElementsAre("hold"));
    EXPECT_TRUE(model.strategy()->usable());
  });
}

TEST_F(OwnStrategy, KeepsWhatItsExchangeHasLearntInCheckpoints) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    Noted noted;
    auto model = noted.accelerator.prepare(std::make_shared<Mlp>());
    noted.notes->take();
    noted.notes->kept = {
        .gradient_order = {3, 1, 2, 0}, .follows_order = true, .own = {{"rank", rank.rank}}};
    noted.accelerator.save_state(folder / "state");
    EXPECT_THAT(noted.notes->take(), ElementsAre("sound: save_state", "save: save_state", "saved"));
    noted.accelerator.save_state(folder / "more", {.gradients = true});
    EXPECT_THAT(noted.notes->take(),
                ElementsAre("sound: save_state", "save: save_state with gradients", "saved"));
    noted.accelerator.load_state(folder / "state");
    EXPECT_THAT(noted.notes->restored.gradient_order, ElementsAre(3, 1, 2, 0));
    EXPECT_TRUE(noted.notes->restored.follows_order);
    EXPECT_EQ(noted.notes->restored.own.at("rank").as_integer(), rank.rank);
  });
}

// Also where restoring is no collective: the next one is.
TEST_F(OwnStrategy, FailsOnAllRanksWhereItsExchangeCannotBeRestoredOnOne) {
  const StateFolder folder;
  run(2, [&](const Rank& rank) {
    for (const bool follows_order : {false, true}) {
      Noted noted;
      auto model = noted.accelerator.prepare(std::make_shared<Mlp>());
      noted.notes->kept.follows_order = follows_order;
      noted.accelerator.save_state(folder / "state");
      noted.notes->refuses_to_restore = rank.rank == 1;
      EXPECT_THAT(
          error_text<CheckpointError>([&] { noted.accelerator.load_state(folder / "state"); }),
          AllOf(HasSubstr("[rank 1 of 2]"), HasSubstr("could not be applied: no memory for it")));
      noted.accelerator.wait_for_everyone();
    }
  });
}

TEST_F(OwnStrategy, SaysWhatOfItsExchangeIsNotRestored) {
  const StateFolder folder;
  run(1, [&](const Rank&) {
    const auto log_of_load = [&](Accelerator& accelerator) {
      testing::internal::CaptureStderr();
      accelerator.load_state(folder / "state");
      return testing::internal::GetCapturedStderr();
    };
    Noted noted;
    auto model = noted.accelerator.prepare(std::make_shared<Mlp>());
    noted.notes->kept.own = {{"odd", 1}};
    noted.accelerator.save_state(folder / "state");
    EXPECT_THAT(log_of_load(noted.accelerator), HasSubstr("state: an odd thing"));
    Accelerator other(with_strategy(std::make_shared<strategies::Averaging>()));
    auto others = other.prepare(std::make_shared<Mlp>());
    EXPECT_THAT(
        log_of_load(other),
        HasSubstr("state: what the exchange of gradients kept: this program does not use it"));
  });
}

TEST(ModelStrategy, BeginsAForwardPassWithWhatTheAcceleratorDoes) {
  const auto notes = std::make_shared<Notes>();
  NotedModel model(notes);
  model.set_on_forward([&] { notes->calls.emplace_back("on forward"); },
                       [&] { notes->calls.emplace_back("after forward"); });
  model.begin_forward();
  EXPECT_THAT(notes->calls, ElementsAre("on forward", "before forward"));
  model.end_forward();
  EXPECT_EQ(notes->calls.back(), "after forward");
  ModelStrategy alone;
  alone.begin_forward();
  alone.end_forward();
  EXPECT_EQ(alone.exchange_memory(), nullptr);
}

}  // namespace
}  // namespace accelerate::test
