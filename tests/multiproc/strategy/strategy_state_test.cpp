// What strategies keep for the training, over saving and loading and when objects go.
#include <torch/torch.h>

#include "install/consumer/strategies/averaging_strategy.h"
#include "install/consumer/strategies/sharded_optimizer_strategy.h"
#include "multiproc/accumulation.h"
#include "multiproc/state_folder.h"
#include "multiproc/state_nodes.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct StrategyState : Ranks {
  StateFolder folder;
};

// Parameters in bfloat16, gradients in float32.
struct FlatWindow {
  FlatWindow() : accelerator(options()), net(fresh_net()) {
    auto prepared =
        accelerator.prepare(net, torch::optim::AdamW(net->parameters(), /*defaults=*/0.02));
    model.emplace(std::get<0>(prepared));
    optimizer.emplace(std::get<1>(prepared));
  }
  static AcceleratorOptions options() {
    AcceleratorOptions options = on_cpu();
    options.gradient_accumulation.steps = 3;
    options.mixed_precision = MixedPrecision::kBf16;
    options.flat = FlatOptions{};
    return options;
  }

  void micro_batch(int number) {
    const StepData data = data_of_step(number, accelerator.num_processes() * kRows);
    const int rank = accelerator.process_index();
    const auto window = accelerator.accumulate(*model);
    accelerator.backward(loss_of((*model)(rows_of(data.input, rank)), rows_of(data.target, rank)));
    optimizer->step();
    optimizer->zero_grad();
  }
  std::vector<double> masters() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : net->parameters()) {
      all.push_back(model->strategy()->master_of(parameter));
    }
    return flat(all);
  }

  Accelerator accelerator;
  std::shared_ptr<Mlp> net;
  std::optional<PreparedModel<Mlp>> model;
  std::optional<PreparedOptimizer> optimizer;
};

TEST_F(StrategyState, SumsOfMicroBatchesInFloat32AreNotRoundedOnLoad) {
  for (const int ranks : {1, 2}) {
    const std::string name = "window_" + std::to_string(ranks);
    run(ranks, [&](const Rank&) {
      FlatWindow first;
      for (int i = 0; i < 2; ++i) first.micro_batch(i);
      const std::vector<double> sums = flat(gradients(first.net->parameters()));
      first.accelerator.save_state(folder / name);
      first.micro_batch(2);

      FlatWindow second;
      second.accelerator.load_state(folder / name);
      EXPECT_EQ(flat(gradients(second.net->parameters())), sums);
      second.micro_batch(2);
      EXPECT_EQ(second.masters(), first.masters());
    });
  }
}

// A strategy of one rank or several that writes down what happens to it.
using StateNotes = std::shared_ptr<std::vector<std::string>>;

struct MortalOptimizer final : OptimizerStrategy {
  MortalOptimizer(torch::optim::Optimizer& optimizer, StateNotes notes)
      : OptimizerStrategy(optimizer), notes_(std::move(notes)) {}
  ~MortalOptimizer() override { notes_->emplace_back("optimizer gone"); }

 private:
  StateNotes notes_;
};

struct MortalModel final : ModelStrategy {
  explicit MortalModel(StateNotes notes) : notes_(std::move(notes)) {}
  bool usable() const override { return usable_; }
  void release() override { notes_->emplace_back("release"); }
  bool usable_ = true;

 private:
  StateNotes notes_;
};

class StateNoting final : public Strategy {
 public:
  StateNoting(StateNotes notes, int rank) : notes_(std::move(notes)), rank_(rank) {}
  std::string_view name() const override { return "state noting"; }
  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module>) override {
    return std::make_shared<MortalModel>(notes_);
  }
  std::unique_ptr<OptimizerStrategy> prepare_optimizer(
      const OptimizerPreparation& preparation) override {
    return std::make_unique<MortalOptimizer>(preparation.optimizer, notes_);
  }
  void before_save(const char* where, bool /*with_gradients*/) override {
    notes_->emplace_back(where);
    if (rank_ == 1) throw UsageError({.what = "rank 1 alone is not fit", .where = where});
  }
  at::Tensor grad_norm(at::TensorList parameters, const ClipNormOptions& options) override {
    return Strategy::grad_norm(parameters, options) * 2;
  }

 private:
  StateNotes notes_;
  int rank_;
};

struct StateNotingFactory final : StrategyFactory {
  explicit StateNotingFactory(StateNotes own) : notes(std::move(own)) {}
  std::unique_ptr<Strategy> make(const StrategyContext& context) const override {
    return std::make_unique<StateNoting>(notes, context.ranks->rank());
  }
  StateNotes notes;
};

struct StateNoted {
  StateNotes notes = std::make_shared<std::vector<std::string>>();
  Accelerator accelerator{options()};

  // A model whose optimizer was prepared too, and is gone.
  PreparedModel<Mlp> prepare_past_its_optimizer(const std::shared_ptr<Mlp>& net) {
    auto model = accelerator.prepare(net);
    torch::optim::AdamW adamw(net->parameters());
    auto optimizer = accelerator.prepare(adamw);
    return model;
  }

 private:
  AcceleratorOptions options() const {
    AcceleratorOptions options = on_cpu();
    options.strategy = std::make_shared<StateNotingFactory>(notes);
    return options;
  }
};

TEST_F(StrategyState, OptimizersThatAreGoneAreDroppedBeforeAModelIsSaved) {
  run(1, [&](const Rank&) {
    StateNoted noted;
    auto net = std::make_shared<Mlp>();
    auto model = noted.prepare_past_its_optimizer(net);
    noted.accelerator.save_model(model, folder / "model");
    EXPECT_THAT(*noted.notes, ElementsAre("optimizer gone", "save_model"));
  });
}

TEST_F(StrategyState, OptimizersThatAreGoneAreDroppedBeforeAModelIsReleased) {
  run(1, [&](const Rank&) {
    StateNoted noted;
    auto net = std::make_shared<Mlp>();
    auto model = noted.prepare_past_its_optimizer(net);
    std::static_pointer_cast<MortalModel>(model.strategy())->usable_ = false;
    auto again = noted.accelerator.prepare(net);
    EXPECT_THAT(*noted.notes, ElementsAre("optimizer gone", "release"));
  });
}

TEST_F(StrategyState, WhatOneRankThrowsBeforeASaveIsThrownOnAll) {
  run(2, [&](const Rank&) {
    StateNoted noted;
    auto model = noted.accelerator.prepare(std::make_shared<Mlp>());
    EXPECT_THAT(usage_error([&] { noted.accelerator.save_state(folder / "state"); }),
                AllOf(HasSubstr("[rank 1 of 2]"), HasSubstr("rank 1 alone is not fit")));
    EXPECT_THAT(usage_error([&] { noted.accelerator.save_model(model, folder / "model"); }),
                AllOf(HasSubstr("[rank 1 of 2]"), HasSubstr("rank 1 alone is not fit")));
  });
}

TEST_F(StrategyState, ClippingGoesByTheNormOfTheStrategy) {
  run(1, [](const Rank&) {
    StateNoted noted;
    auto net = std::make_shared<Mlp>();
    auto model = noted.accelerator.prepare(net);
    noted.accelerator.backward(model(ones({2, 6})).sum());
    const double norm = grad_norm(net->parameters()).item<double>();
    const double told = noted.accelerator.clip_grad_norm_(net->parameters(), norm).item<double>();
    EXPECT_NEAR(told, 2 * norm, 1e-5 * norm);
    EXPECT_NEAR(grad_norm(net->parameters()).item<double>(), norm / 2, 1e-5 * norm);
    EXPECT_THAT(usage_error([&] { noted.accelerator.clip_grad_norm_(net->parameters(), -1); }),
                AllOf(HasSubstr("max_norm must be 0 or more"), HasSubstr("clip_grad_norm_")));
  });
}

TEST_F(StrategyState, AModuleThatALoadHookPutsThereIsLoadedAsItIs) {
  run(1, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    auto model = accelerator.prepare(net);
    accelerator.save_state(folder / "hooked");
    auto other = std::make_shared<Mlp>();
    auto hook = accelerator.register_load_state_pre_hook(
        [&](std::vector<std::shared_ptr<torch::nn::Module>>& models, const auto&) {
          models[0] = other;
        });
    accelerator.load_state(folder / "hooked");
    EXPECT_EQ(flat(other->parameters()), flat(net->parameters()));
  });
}

// --- state in pieces ---

AcceleratorOptions in_pieces(ProjectOptions project = {}) {
  AcceleratorOptions options = on_cpu();
  options.project = std::move(project);
  options.strategy = std::make_shared<strategies::ShardedOptimizerFactory>();
  return options;
}

TEST_F(StrategyState, PiecesAreNotTrainedByAClosure) {
  run(1, [](const Rank&) {
    Accelerator accelerator(in_pieces());
    auto net = std::make_shared<Mlp>();
    auto [model, optimizer] = accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1));
    const auto closure = [&, &model = model] {
      const at::Tensor loss = model(ones({2, 6})).sum();
      accelerator.backward(loss);
      return loss;
    };
    EXPECT_THAT(usage_error([&, &optimizer = optimizer] { optimizer.step(closure); }),
                HasSubstr("the strategy trains pieces of parameters, and a closure computes "
                          "gradients of whole ones"));
    EXPECT_EQ(optimizer.step_count(), 0);
  });
}

// Two parameters of one size: each of two ranks trains one of them.
struct Twins : torch::nn::Module {
  Twins()
      : first(register_parameter("first", torch::ones({4}, test_device()))),
        second(register_parameter("second", torch::ones({4}, test_device()))) {}
  at::Tensor forward() { return (first * first + second * second).sum(); }
  at::Tensor first, second;
};

struct TwinTraining {
  explicit TwinTraining(const AcceleratorOptions& options) : accelerator(options) {
    auto prepared = accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1));
    model.emplace(std::get<0>(prepared));
    optimizer.emplace(std::get<1>(prepared));
  }
  void step() {
    accelerator.backward((*model)());
    optimizer->step();
    optimizer->zero_grad();
  }
  std::string refusal(const std::filesystem::path& directory) {
    try {
      accelerator.load_state(directory);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return {};
  }

  Accelerator accelerator;
  std::shared_ptr<Twins> net = std::make_shared<Twins>();
  std::optional<PreparedModel<Twins>> model;
  std::optional<PreparedOptimizer> optimizer;
};

TEST_F(StrategyState, PiecesOfARankWhoseFileIsMissingAreNotMadeUp) {
  run(2, [&](const Rank& rank) {
    become_node(rank.rank);
    TwinTraining training(in_pieces(project_of_node(folder, rank.rank)));
    training.step();
    training.accelerator.save_state();
    EXPECT_EQ(training.refusal({}), "");  // each rank has what it needs
    training.step();
  });
  run(1, [&](const Rank&) {
    AcceleratorOptions options = on_cpu();
    TwinTraining elsewhere(options);
    EXPECT_THAT(elsewhere.refusal(folder / "node_0" / "checkpoints" / "checkpoint_0"),
                AllOf(HasSubstr("the state of parameter 1 is in none of the files that are here"),
                      HasSubstr("optimizer_pieces_1.safetensors is missing")));
  });
}

TEST_F(StrategyState, RanksWithoutStateSayThatTheyHaveNone) {
  run(2, [&](const Rank&) {
    TwinTraining training(in_pieces());
    training.accelerator.save_state(folder / "fresh");
    training.accelerator.wait_for_everyone();
    for (const char* file : {"optimizer_pieces_0.safetensors", "optimizer_pieces_1.safetensors"}) {
      EXPECT_TRUE(std::filesystem::exists(folder / "fresh" / file)) << file;
    }
  });
  run(1, [&](const Rank&) {
    TwinTraining training(on_cpu());
    EXPECT_EQ(training.refusal(folder / "fresh"), "");
  });
}

// Says of the upper half of a parameter that it begins a quarter earlier.
class Misplaced final : public OptimizerStrategy {
 public:
  Misplaced(torch::optim::Optimizer& optimizer, int64_t rank)
      : OptimizerStrategy(optimizer), rank_(rank) {
    auto& group = optimizer.param_groups()[0];
    whole_ = group.params()[0];
    trained_ = whole_.detach().narrow(0, 4 * rank, 4).clone().requires_grad_();
    group.params() = {trained_};
  }
  std::vector<at::Tensor> parameters() const override { return {whole_}; }
  void before_step() override { trained_.mutable_grad() = torch::ones_like(trained_); }
  std::optional<OptimizerLayout> layout() const override {
    return OptimizerLayout{
        .group_sizes = {1},
        .tensors = {{{.parameter = 0, .box = {.start = {2 * rank_}, .shape = {4}}}}}};
  }

 private:
  int64_t rank_;
  at::Tensor whole_, trained_;
};

class MisplacedStrategy final : public Strategy {
 public:
  explicit MisplacedStrategy(int rank) : rank_(rank) {}
  std::string_view name() const override { return "misplaced"; }
  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module>) override {
    return std::make_shared<ModelStrategy>();
  }
  std::unique_ptr<OptimizerStrategy> prepare_optimizer(
      const OptimizerPreparation& preparation) override {
    return std::make_unique<Misplaced>(preparation.optimizer, rank_);
  }

 private:
  int rank_;
};

struct MisplacedFactory final : StrategyFactory {
  std::unique_ptr<Strategy> make(const StrategyContext& context) const override {
    return std::make_unique<MisplacedStrategy>(context.ranks->rank());
  }
};

TEST_F(StrategyState, PiecesThatOverlapDoNotHideAHole) {
  const auto parameter = [] { return torch::ones({8}, test_device()).requires_grad_(); };
  run(2, [&](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.strategy = std::make_shared<MisplacedFactory>();
    Accelerator accelerator(options);
    auto optimizer = accelerator.prepare(
        torch::optim::AdamW(std::vector<at::Tensor>{parameter()}, /*defaults=*/0.1));
    optimizer.step();
    accelerator.save_state(folder / "overlap");
  });
  run(1, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto optimizer = accelerator.prepare(
        torch::optim::AdamW(std::vector<at::Tensor>{parameter()}, /*defaults=*/0.1));
    std::string error;
    try {
      accelerator.load_state(folder / "overlap");
    } catch (const CheckpointError& refused) {
      error = refused.what();
    }
    EXPECT_THAT(error, HasSubstr("of parameter 0 overlap"));
  });
}

// --- state without a layout ---

// Steps by the gradients of its own rank, where `apart`: AdamW then keeps other moments on each.
std::string refusal_of_averaged(const std::filesystem::path& directory, int rank, bool apart) {
  AcceleratorOptions options = on_cpu();
  options.strategy = std::make_shared<strategies::Averaging>();
  Accelerator accelerator(options);
  auto net = std::make_shared<Mlp>();
  auto [model, optimizer] = accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1));
  const double value = apart ? 1.0 + rank : 1.0;
  accelerator.backward(model(torch::full({1, 6}, value, test_device())).sum());
  optimizer.step();
  try {
    accelerator.save_state(directory);
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TEST_F(StrategyState, OptimizersThatDifferByRankWithoutALayoutAreNotSaved) {
  run(2, [&](const Rank& rank) {
    EXPECT_THAT(refusal_of_averaged(folder / "apart", rank.rank, true),
                AllOf(HasSubstr("of optimizer 0 differs between rank 0 and rank 1"),
                      HasSubstr("\"averaging\""), HasSubstr("layout()")));
    EXPECT_FALSE(std::filesystem::exists(folder / "apart"));
    EXPECT_EQ(refusal_of_averaged(folder / "alike", rank.rank, false), "");
    EXPECT_TRUE(std::filesystem::exists(folder / "alike"));
  });
}

// Rank 1 alone has made a step.
TEST_F(StrategyState, OptimizersThatHaveStateOnOneRankAloneAreNotSaved) {
  run(2, [&](const Rank& rank) {
    at::Tensor parameter = torch::ones({4}, test_device()).requires_grad_();
    torch::optim::AdamW adamw(std::vector<at::Tensor>{parameter}, 0.1);
    if (rank.rank == 1) {
      parameter.mutable_grad() = torch::ones_like(parameter);
      adamw.step();
    }
    AcceleratorOptions options = on_cpu();
    options.strategy = std::make_shared<strategies::Averaging>();
    Accelerator accelerator(options);
    auto optimizer = accelerator.prepare(adamw);
    EXPECT_THAT(usage_error([&] { accelerator.save_state(folder / "one"); }),
                HasSubstr("of optimizer 0 differs between rank 0 and rank 1"));
  });
}

}  // namespace
}  // namespace accelerate::test
