// A load that cannot be leaves everything as it was, also what changes in place.
#include <fstream>
#include <functional>
#include <limits>

#include "files/durable/durable_file.h"
#include "files/manifest/manifest_file.h"
#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct StateUndo : Ranks {
  StateFolder folder;
};

// Changes its tensor in place.
struct Ema {
  at::Tensor mean = torch::zeros({3});
  StateDict state_dict() const { return {{"nested", StateDict{{"mean", mean}}}}; }
  void load_state_dict(const StateDict& state) {
    mean.copy_(state.at("nested").as_dict().at("mean").as_tensor());
  }
};

struct Refusing {
  StateDict state_dict() const { return {{"value", 1}}; }
  void load_state_dict(const StateDict&) { throw std::runtime_error("not mine"); }
};

TEST_F(StateUndo, ObjectsThatChangeInPlaceAreGivenBackTheirValues) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    Ema ema, other;
    Refusing refusing;
    accelerator.register_for_checkpointing(ema);
    if (rank.rank == 1) {
      accelerator.register_for_checkpointing(refusing);
    } else {
      accelerator.register_for_checkpointing(other);
    }
    accelerator.save_state(folder / "state");
    ema.mean.fill_(5);
    other.mean.fill_(6);
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.load_state(folder / "state"); }),
                HasSubstr("registered object 1 refuses its state: not mine"));
    EXPECT_TRUE(ema.mean.equal(torch::full({3}, 5.0)));
    EXPECT_TRUE(other.mean.equal(torch::full({3}, 6.0)));
  });
}

TEST_F(StateUndo, FlatParametersKeepTheirMasters) {
  run(2, [&](const Rank& rank) {
    AcceleratorOptions options = on_cpu();
    options.flat = FlatOptions{};
    Accelerator accelerator(options);
    torch::manual_seed(1);
    auto net = std::make_shared<Mlp>();
    torch::optim::AdamW adamw(net->parameters(), 1e-2);
    auto [model, optimizer] = accelerator.prepare(net, adamw);
    Ema ema;
    Refusing refusing;
    if (rank.rank == 1) {
      accelerator.register_for_checkpointing(refusing);
    } else {
      accelerator.register_for_checkpointing(ema);
    }
    accelerator.save_state(folder / "state");
    for (int step = 0; step < 3; ++step) {
      accelerator.backward(model(ones({2, 6}).to(at::kBFloat16)).sum());
      optimizer.step();
    }
    adamw.param_groups()[0].options().set_lr(5e-3);
    const auto all = [&, &model = model] {
      std::vector<at::Tensor> tensors = net->parameters();
      for (const at::Tensor& parameter : net->parameters()) {
        tensors.push_back(model.strategy()->master_of(parameter));
      }
      return flat(tensors);
    };
    const auto before = all();
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.load_state(folder / "state"); }),
                HasSubstr("registered object 0 refuses its state: not mine"));
    EXPECT_EQ(all(), before);
    EXPECT_EQ(optimizer.step_count(), 3);
    EXPECT_EQ(adamw.param_groups()[0].options().get_lr(), 5e-3);
  });
}

// Breaks a parameter when the load cannot be taken back any more.
struct Breaking {
  std::shared_ptr<Mlp> net;
  bool breaks = false;
  StateDict state_dict() const { return {{"value", 1}}; }
  void load_state_dict(const StateDict&) const {
    if (breaks) net->second->weight.set_data(torch::zeros({1}));
  }
};

TEST_F(StateUndo, ALoadThatFailsHalfwayEndsTheTrainingUntilAnotherSucceeds) {
  run(2, [&](const Rank& rank) {
    AcceleratorOptions options = on_cpu();
    options.gradient_accumulation.steps = 2;
    Accelerator accelerator(options);
    torch::manual_seed(1);
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    Breaking breaking{.net = net};
    accelerator.register_for_checkpointing(breaking);
    const StepData data = host_data_of_step(1, 16);
    auto [model, optimizer, loader] = accelerator.prepare(
        net, sgd, data_loader(TensorDataset(data.input, data.target), {.batch_size = 2}));
    const auto micro_batch = [&, &model = model, &optimizer = optimizer] {
      const auto scope = accelerator.accumulate(model);
      const StepData own = data_of_step(rank.rank, 2);
      accelerator.backward(loss_of(model(own.input), own.target));
      optimizer.step();
      optimizer.zero_grad();
    };
    int captured_calls = 0;
    auto captured = accelerator.capture([&](const StepCapture::Tensors& in) {
      ++captured_calls;
      return in;
    });
    micro_batch();
    micro_batch();
    accelerator.save_state(folder / "state");
    micro_batch();  // its gradients wait for the next
    const at::Tensor weight = net->second->weight.detach().clone();
    breaking.breaks = rank.rank == 1;
    EXPECT_THAT(thrown_by<CheckpointError>([&] { accelerator.load_state(folder / "state"); }),
                AllOf(HasSubstr("[rank 1 of 2]"), HasSubstr("could not be applied")));
    const auto refused = [&](const char* where, const std::function<void()>& call) {
      EXPECT_THAT(usage_error(call),
                  AllOf(HasSubstr("load_state() failed halfway: some objects have the state of " +
                                  (folder / "state").string()),
                        HasSubstr(std::string("at   ") + where),
                        HasSubstr("load a checkpoint again, or end the program")));
    };
    refused("forward", [&, &model = model] { model(ones({2, 6})); });
    refused("backward", [&] { accelerator.backward(net->first->bias.sum()); });
    refused("step", [&, &optimizer = optimizer] { optimizer.step(); });
    refused("zero_grad", [&, &optimizer = optimizer] { optimizer.zero_grad(); });
    refused("accumulate", [&] { const auto scope = accelerator.accumulate(); });
    refused("loader: next batch", [&, &loader = loader] {
      for (auto& batch : loader) (void)batch;
    });
    refused("save_state", [&] { accelerator.save_state(folder / "other"); });
    refused("save_model",
            [&, &model = model] { accelerator.save_model(model, folder / "weights"); });
    refused("captured step", [&] { captured({}); });
    EXPECT_EQ(captured_calls, 0);

    breaking.breaks = false;
    net->second->weight.set_data(weight);
    accelerator.load_state(folder / "state");
    EXPECT_TRUE(accelerator.sync_gradients());
    for (const at::Tensor& parameter : net->parameters()) {
      EXPECT_FALSE(parameter.grad().defined());
    }
    micro_batch();
    micro_batch();
    EXPECT_EQ(optimizer.step_count(), 2);
  });
}

TEST_F(StateUndo, ANumberThatHasNoNextIsFoundBeforeAnythingChanges) {
  run(2, [&](const Rank& rank) {
    const ProjectOptions project{.project_dir = folder.path(), .automatic_checkpoint_naming = true};
    ResumeTraining training({}, 7, project);
    training.accelerator().save_state();
    training.train(0, 2);
    const auto before = flat(training.net()->parameters());
    const std::string largest = "checkpoint_" + std::to_string(std::numeric_limits<int64_t>::max());
    if (rank.rank == 0) std::filesystem::create_directory(folder / "checkpoints" / largest);
    training.accelerator().wait_for_everyone();
    EXPECT_THAT(thrown_by<CheckpointError>([&] {
                  training.accelerator().load_state(folder / "checkpoints" / "checkpoint_0");
                }),
                HasSubstr("no checkpoint number is left after " + largest));
    EXPECT_EQ(flat(training.net()->parameters()), before);
    for (const int64_t number : {int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
      EXPECT_THAT(usage_error([&] { training.accelerator().set_save_iteration(number); }),
                  HasSubstr("iteration cannot be " + std::to_string(number)));
    }
  });
}

// Replaces a file of a checkpoint, so that its manifest fits.
void replace(const std::filesystem::path& directory, const std::string& name,
             const TorchValue& value) {
  files::Manifest manifest = files::read_manifest(files::open_directory(directory), directory);
  std::filesystem::remove(directory / name);
  save_torch_archive(directory / name, value);
  for (files::FileRecord& record : manifest.files) {
    if (record.name == name) record = files::record_written_file(directory, name);
  }
  std::ofstream(directory / files::kManifestName) << files::manifest_text(manifest);
}

struct DamagedState : StateUndo {
  // Rank 0 changes what the file of the state holds, and all wait for it.
  void damage(ResumeTraining& training, const Rank& rank, const std::string& file,
              const std::function<void(TorchDict&)>& change) {
    if (rank.rank == 0) {
      TorchDict dict = load_torch_archive(folder / "state" / file).as_dict();
      change(dict);
      replace(folder / "state", file, dict);
    }
    training.accelerator().wait_for_everyone();
  }
  // And nothing has changed.
  void expect_refused(ResumeTraining& training, const testing::Matcher<std::string>& said) {
    const auto before = flat(training.net()->parameters());
    EXPECT_THAT(
        thrown_by<CheckpointError>([&] { training.accelerator().load_state(folder / "state"); }),
        said);
    EXPECT_EQ(flat(training.net()->parameters()), before);
  }
};

ResumeCase with_power_sgd(PowerSgdOptions options = {}) {
  options.start_power_sgd_iter = 2;
  return {.optimizer = "sgd",
          .ddp = {.comm_hook = {.hook = CommHook::kPowerSgd, .power_sgd = options}}};
}

TEST_F(DamagedState, ARandomStateThatIsNoneIsFoundBeforeAnythingChanges) {
  run(2, [&](const Rank& rank) {
    ResumeTraining training({}, 7);
    training.accelerator().save_state(folder / "state");
    training.train(0, 2);
    const std::string file = "random_states_1.pkl";
    damage(training, rank, file, [](TorchDict& dict) {
      dict.set("torch_manual_seed",
               torch::full_like(dict.at("torch_manual_seed").as_tensor(), 255));
    });
    expect_refused(training,
                   AllOf(HasSubstr("the random state of cpu is invalid"), HasSubstr(file)));
  });
}

TEST_F(DamagedState, AMemoryOfPowerSgdThatIsNoneIsFoundBeforeAnythingChanges) {
  run(2, [&](const Rank& rank) {
    ResumeTraining training(with_power_sgd(), 7);
    training.train(0, 3);
    training.accelerator().save_state(folder / "state");
    training.train(3, 4);
    const std::string file = "rank_state_1.bin";
    damage(training, rank, file, [](TorchDict& dict) {
      dict.set("hooks", TorchValue::List{TorchDict{{"iteration", 3}, {"draws", -2}}});
    });
    expect_refused(training,
                   AllOf(HasSubstr("the state of PowerSGD has draws = -2"), HasSubstr(file)));
  });
}

TEST_F(StateUndo, DirectionsOfAnotherRankOfTheApproximationAreDrawnAgainAndThatIsLogged) {
  const auto with_rank = [](int64_t rank) {
    return with_power_sgd({.matrix_approximation_rank = rank, .min_compression_rate = 0.1});
  };
  spawn(2, [&](const Rank&) {
    {
      ResumeTraining training(with_rank(1), 7);
      training.train(0, 3);
      training.accelerator().save_state(folder / "state");
    }
    ResumeTraining resumed(with_rank(2), 7);
    resumed.accelerator().load_state(folder / "state");
    resumed.train(3, 5);
    for (const at::Tensor& parameter : resumed.net()->parameters()) {
      EXPECT_TRUE(parameter.isfinite().all().item<bool>());
    }
  });
  wait_all();
  EXPECT_THAT(output_of(0),
              HasSubstr("the directions of PowerSGD: saved with matrix_approximation_rank 1, this "
                        "program has 2; they are drawn again"));
}

// A few bytes of a file may describe terabytes.
TEST_F(DamagedState, AMemoryOfPowerSgdThatIsLargerThanItsFileIsRefused) {
  run(2, [&](const Rank& rank) {
    ResumeTraining training(with_power_sgd(), 7);
    training.train(0, 3);
    training.accelerator().save_state(folder / "state");
    damage(training, rank, "rank_state_1.bin", [](TorchDict& dict) {
      TorchDict bucket{{"index", 0},
                       {"directions", TorchValue::List{}},
                       {"first_directions", TorchValue::List{}},
                       {"error", torch::ones({1}).expand({int64_t{1} << 44})}};
      dict.set("hooks",
               TorchValue::List{TorchDict{
                   {"iteration", 3}, {"draws", 1}, {"buckets", TorchValue::List{bucket}}}});
    });
    expect_refused(training,
                   HasSubstr("the state of PowerSGD describes far more than the file holds"));
  });
}

TEST_F(DamagedState, AGradientThatIsLargerThanItsParameterIsRefusedAtAnotherNumberOfRanks) {
  const auto save = [&](const Rank& rank) {
    ResumeTraining training({.accumulation = 2}, 7);
    training.train(0, 1);
    training.accelerator().save_state(folder / "state");
    damage(training, rank, "rank_state_0.bin", [](TorchDict& dict) {
      TorchDict gradients = dict.at("gradients").as_sequence()[0].as_dict();
      const std::string name = gradients.entries()[0].first.as_string();
      gradients.set(name, torch::ones({1}).expand({int64_t{1} << 44}));
      dict.set("gradients", TorchValue::List{gradients});
    });
  };
  run(2, save);
  run(1, [&](const Rank&) {
    ResumeTraining training({.accumulation = 2}, 7);
    expect_refused(training, AllOf(HasSubstr("the model has no place for the gradient of"),
                                   HasSubstr("rank_state_0.bin")));
  });
}

TEST_F(StateUndo, CheckingAScheduleTouchesNeitherItNorTheOptimizer) {
  run(1, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    torch::optim::SGD sgd(net->parameters(), 0.1);
    Scheduler linear = get_scheduler("linear", sgd, {.warmup_steps = 0, .training_steps = 10});
    auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, linear);
    accelerator.save_state(folder / "state");
    const StepData data = data_of_step(0, kRows);
    accelerator.backward(loss_of(model(data.input), data.target));
    optimizer.step();
    scheduler.step();
    auto& options = static_cast<torch::optim::SGDOptions&>(sgd.param_groups()[0].options());
    const StateDict state = linear.state_dict();
    const double rate = options.lr();
    Refusing refusing;  // the checkpoint has none
    accelerator.register_for_checkpointing(refusing);
    thrown_by<CheckpointError>([&] { accelerator.load_state(folder / "state"); });
    EXPECT_EQ(&sgd.param_groups()[0].options(), &options) << "references must stay valid";
    EXPECT_EQ(options.lr(), rate);
    EXPECT_EQ(linear.state_dict(), state);
  });
}

TEST_F(StateUndo, AllNamesAreListed) {
  run(1, [&](const Rank&) {
    {
      Accelerator accelerator(on_cpu());
      torch::nn::Sequential many;
      for (int i = 0; i < 12; ++i) many->push_back(torch::nn::Linear(2, 2));
      auto model = accelerator.prepare(many.ptr());
      accelerator.save_state(folder / "state");
    }
    Accelerator accelerator(on_cpu());
    auto model = accelerator.prepare(torch::nn::Sequential(torch::nn::Linear(2, 2)).ptr());
    const std::string error =
        thrown_by<CheckpointError>([&] { accelerator.load_state(folder / "state"); });
    for (int i = 1; i < 12; ++i) EXPECT_THAT(error, HasSubstr(std::to_string(i) + ".weight"));
  });
}

TEST_F(StateUndo, APathMayHoldALineBreak) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    accelerator.save_state(folder / "two\nlines");
    EXPECT_EQ(accelerator.load_state(folder / "two\nlines"), folder / "two\nlines");
  });
}

}  // namespace
}  // namespace accelerate::test
