// What does not fit is refused on all ranks, with the same words, and nothing changes.
#include <fstream>

#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

struct StateErrors : Ranks {
  StateFolder folder;
};

struct Wide : Net {
  Wide()
      : first(register_module("first", torch::nn::Linear(6, 9))),
        third(register_module("third", torch::nn::Linear(9, 3))) {}
  at::Tensor forward(at::Tensor input) override { return third(first(input)); }
  torch::nn::Linear first, third;
};

struct Counter {
  int64_t value = 0;
  StateDict state_dict() const { return {{"value", value}}; }
  void load_state_dict(const StateDict& state) { value = state.at("value").as_integer(); }
};

// Takes no state at all.
struct Stubborn {
  StateDict state_dict() const { return {{"value", 1}}; }
  void load_state_dict(const StateDict& state) {
    if (state.at("value").as_integer() != 1) throw std::runtime_error("not mine");
  }
};

// Gives no state.
struct Silent {
  StateDict state_dict() const { throw std::runtime_error("nothing to say"); }
  void load_state_dict(const StateDict&) {}
};

std::string load_error(Accelerator& accelerator, const std::filesystem::path& directory) {
  return thrown_by<CheckpointError>([&] { accelerator.load_state(directory); });
}

void save_mlp(const std::filesystem::path& directory) {
  Accelerator accelerator(on_cpu());
  auto net = std::make_shared<Mlp>();
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  auto [model, optimizer] = accelerator.prepare(net, sgd);
  const StepData data = data_of_step(0, kRows);
  accelerator.backward(loss_of(model(data.input), data.target));
  optimizer.step();
  accelerator.save_state(directory);
}

TEST_F(StateErrors, NamesOfAnotherModelAreListed) {
  run(2, [&](const Rank&) {
    save_mlp(folder / "state");
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Wide>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const auto before = flat(net->parameters());
    const std::string error = load_error(accelerator, folder / "state");
    EXPECT_THAT(error, HasSubstr("third.weight, third.bias"));
    EXPECT_THAT(error, HasSubstr("the model has no second.bias, second.weight"));
    EXPECT_THAT(error, HasSubstr("model.safetensors"));
    EXPECT_EQ(flat(net->parameters()), before);
  });
}

TEST_F(StateErrors, AnotherShapeIsNamedWithBothShapes) {
  run(2, [&](const Rank&) {
    save_mlp(folder / "state");
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>(9);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, sgd);
    const auto before = flat(net->parameters());
    const std::string error = load_error(accelerator, folder / "state");
    EXPECT_THAT(error, HasSubstr("first.weight [8, 6] in the file, [9, 6] in the model"));
    EXPECT_EQ(flat(net->parameters()), before);
    EXPECT_TRUE(sgd.state().empty());
  });
}

TEST_F(StateErrors, AnotherOptimizerIsRefused) {
  run(1, [&](const Rank&) {
    save_mlp(folder / "state");
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    torch::optim::Adam adam(net->parameters(), 0.1);
    auto [model, optimizer] = accelerator.prepare(net, adam);
    const auto before = flat(net->parameters());
    EXPECT_THAT(load_error(accelerator, folder / "state"), HasSubstr("optimizer.bin"));
    EXPECT_EQ(flat(net->parameters()), before);
  });
}

TEST_F(StateErrors, OtherNumbersOfThingsAreRefusedAndPassedOverIfNotStrict) {
  run(2, [&](const Rank&) {
    save_mlp(folder / "state");
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    auto model = accelerator.prepare(net);
    Counter counter{.value = 5};
    accelerator.register_for_checkpointing(counter);
    const std::string error = load_error(accelerator, folder / "state");
    EXPECT_THAT(error, HasSubstr("holds 1 optimizers, this program has 0"));
    EXPECT_THAT(error, HasSubstr("holds 0 registered objects, this program has 1"));
    accelerator.load_state(folder / "state", {.strict = false});
    EXPECT_EQ(counter.value, 5);
  });
}

TEST_F(StateErrors, AnObjectThatRefusesItsStateLeavesEverythingAsItWas) {
  run(2, [&](const Rank& rank) {
    {
      Accelerator accelerator(on_cpu());
      auto model = accelerator.prepare(std::make_shared<Mlp>());
      Counter first{.value = 1}, second{.value = 2};
      accelerator.register_for_checkpointing(first, second);
      accelerator.save_state(folder / "state");
    }
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    auto model = accelerator.prepare(net);
    const auto before = flat(net->parameters());
    Counter first{.value = 10}, second{.value = 20};
    Stubborn stubborn;
    accelerator.register_for_checkpointing(first);
    if (rank.rank == 1) {
      accelerator.register_for_checkpointing(stubborn);
    } else {
      accelerator.register_for_checkpointing(second);
    }
    const std::string error = load_error(accelerator, folder / "state");
    EXPECT_THAT(error, AllOf(HasSubstr("[rank 1 of 2]"),
                             HasSubstr("registered object 1 refuses its state: not mine"),
                             HasSubstr("custom_checkpoint_1.pkl")));
    EXPECT_EQ(first.value, 10);
    EXPECT_EQ(second.value, 20);
    EXPECT_EQ(flat(net->parameters()), before);
  });
}

TEST_F(StateErrors, AnObjectThatGivesNoStateIsNamedOnAllRanks) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(std::make_shared<Mlp>());
    Counter counter;
    Silent silent;
    accelerator.register_for_checkpointing(counter, silent);
    const std::string error =
        thrown_by<CheckpointError>([&] { accelerator.save_state(folder / "state"); });
    EXPECT_THAT(error, AllOf(HasSubstr("[rank 0 of 2]"),
                             HasSubstr("registered object 1 could not return its state: nothing to "
                                       "say"),
                             HasSubstr("custom_checkpoint_1.pkl"), HasSubstr("state_dict()")));
    EXPECT_FALSE(std::filesystem::exists(folder / "state"));
  });
}

TEST_F(StateErrors, OneRankThatCannotReadStopsAll) {
  run(2, [&](const Rank& rank) {
    ResumeTraining training({}, 7);
    training.train(0, 2);
    training.accelerator().save_state(folder / "state");
    if (rank.rank == 0) {
      std::filesystem::resize_file(folder / "state" / "random_states_1.pkl", 100);
    }
    training.accelerator().wait_for_everyone();
    const auto before = flat(training.net()->parameters());
    EXPECT_THAT(load_error(training.accelerator(), folder / "state"),
                HasSubstr("random_states_1.pkl"));
    EXPECT_EQ(flat(training.net()->parameters()), before);
    training.train(2, 4);  // the accelerator is none the worse for it
  });
}

TEST_F(StateErrors, ADirectoryThatIsNoneIsNamed) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    EXPECT_THAT(load_error(accelerator, folder / "nothing"), HasSubstr("nothing"));
    std::filesystem::create_directories(folder / "empty");
    EXPECT_THAT(load_error(accelerator, folder / "empty"), HasSubstr("neither a manifest"));
    EXPECT_THAT(thrown_by<UsageError>([&] { accelerator.load_state(); }),
                HasSubstr("was given no directory"));
    EXPECT_THAT(thrown_by<UsageError>([&] { accelerator.save_state(); }),
                HasSubstr("was given no directory"));
  });
}

TEST_F(StateErrors, ARankThatCannotWriteStopsAllAndLeavesTheOldCheckpoint) {
  run(3, [&](const Rank& rank) {
    ResumeTraining training({}, 7);
    training.train(0, 2);
    training.accelerator().save_state(folder / "state");
    const auto at_two = flat(training.net()->parameters());
    training.train(2, 4);
    Accelerator& accelerator = training.accelerator();
    HookHandle hook = accelerator.register_save_state_pre_hook(
        [&](std::vector<ModelToSave>&, const std::filesystem::path& directory) {
          // In the way of the file that rank 2 wants to write.
          if (rank.rank == 2) std::filesystem::create_directory(directory / "random_states_2.pkl");
        });
    const std::string error =
        thrown_by<CheckpointError>([&] { accelerator.save_state(folder / "state"); });
    EXPECT_THAT(error, AllOf(HasSubstr("[rank 2 of 3]"), HasSubstr("random_states_2.pkl")));
    hook.remove();
    int64_t entries = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      static_cast<void>(entry);
      ++entries;
    }
    EXPECT_EQ(entries, 1) << "something was left behind";
    accelerator.load_state(folder / "state");
    EXPECT_EQ(flat(training.net()->parameters()), at_two);
    accelerator.save_state(folder / "state");
  });
}

TEST_F(StateErrors, AnotherWindowIsRefusedInsideOneOnly) {
  run(1, [&](const Rank&) {
    {
      ResumeTraining training({.accumulation = 3}, 7);
      training.train(0, 4, [&](int done) {
        if (done >= 3) training.accelerator().save_state(folder / std::to_string(done));
      });
    }
    ResumeTraining training({.accumulation = 2}, 7);
    training.accelerator().load_state(folder / "3");
    EXPECT_THAT(load_error(training.accelerator(), folder / "4"),
                HasSubstr("inside a window of accumulation of 3 micro-batches"));
  });
}

}  // namespace
}  // namespace accelerate::test
