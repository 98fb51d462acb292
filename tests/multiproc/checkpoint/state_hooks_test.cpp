// Hooks and objects of the user take part in saving and loading.
#include <fstream>

#include "multiproc/loading.h"
#include "multiproc/resume_training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

struct StateHooks : Ranks {
  StateFolder folder;
};

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

TEST_F(StateHooks, ASaveHookMayChangeWeightsDropModelsAndAddFiles) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto kept = std::make_shared<Mlp>(), dropped = std::make_shared<Mlp>();
    auto [first, second] = accelerator.prepare(kept, dropped);
    auto hook = accelerator.register_save_state_pre_hook(
        [&](std::vector<ModelToSave>& models, const std::filesystem::path& directory) {
          ASSERT_EQ(models.size(), 2U);
          EXPECT_EQ(models[1].module, dropped);
          models.pop_back();
          models[0].weights["first.bias"] = torch::full({8}, 5.0);
          if (rank.rank == 1) std::ofstream(directory / "notes.txt") << "from rank 1";
        });
    accelerator.save_state(folder / "hooked");
    EXPECT_THAT(names_in(folder / "hooked"),
                UnorderedElementsAre("manifest.json", "model.safetensors", "notes.txt",
                                     "random_states_0.pkl", "random_states_1.pkl"));
    EXPECT_TRUE(load_state_dict(folder / "hooked" / "model.safetensors")["first.bias"].equal(
        torch::full({8}, 5.0)));

    auto load_hook = accelerator.register_load_state_pre_hook(
        [&](std::vector<std::shared_ptr<torch::nn::Module>>& models,
            const std::filesystem::path& directory) {
          EXPECT_TRUE(std::filesystem::exists(directory / "notes.txt"));
          models.pop_back();
        });
    const auto before = flat(dropped->parameters());
    accelerator.load_state(folder / "hooked");
    EXPECT_TRUE(kept->first->bias.cpu().equal(torch::full({8}, 5.0)));
    EXPECT_EQ(flat(dropped->parameters()), before);

    hook.remove();
    hook.remove();
    load_hook.remove();
    accelerator.save_state(folder / "plain");
    EXPECT_TRUE(std::filesystem::exists(folder / "plain" / "model_1.safetensors"));
    accelerator.load_state(folder / "plain");
  });
}

TEST_F(StateHooks, AnExceptionOfAHookReachesAllRanks) {
  run(2, [&](const Rank& rank) {
    Accelerator accelerator(on_cpu());
    auto hook = accelerator.register_save_state_pre_hook([&](auto&, const auto&) {
      if (rank.rank == 1) throw std::runtime_error("no disk today");
    });
    try {
      accelerator.save_state(folder / "state");
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("no disk today"));
    }
    EXPECT_TRUE(names_in(folder.path()).empty());
    hook.remove();
    accelerator.save_state(folder / "state");
  });
}

struct Ema {
  at::Tensor mean = torch::zeros({3});
  int64_t count = 0;
  StateDict state_dict() const { return {{"mean", mean}, {"count", count}}; }
  void load_state_dict(const StateDict& state) {
    mean = state.at("mean").as_tensor().clone();
    count = state.at("count").as_integer();
  }
};

TEST_F(StateHooks, RegisteredObjectsComeBack) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    Ema ema;
    ema.mean = torch::arange(3.0);
    ema.count = 4;
    auto shared = std::make_shared<Ema>();
    double rate = 0.5;
    accelerator.register_for_checkpointing(
        ema, shared,
        CheckpointFunctions{
            .state_dict =
                [&] {
                  return StateDict{{"rate", rate}};
                },
            .load_state_dict =
                [&](const StateDict& state) { rate = state.at("rate").as_number(); }});
    accelerator.save_state(folder / "state");
    EXPECT_TRUE(std::filesystem::exists(folder / "state" / "custom_checkpoint_2.pkl"));
    ema = {};
    shared->count = 9;
    rate = 0;
    accelerator.load_state(folder / "state");
    EXPECT_TRUE(ema.mean.equal(torch::arange(3.0)));
    EXPECT_EQ(ema.count, 4);
    EXPECT_EQ(shared->count, 0);
    EXPECT_EQ(rate, 0.5);
  });
}

TEST_F(StateHooks, ATriggerThatNobodyHasCheckedIsKept) {
  run(2, [&](const Rank& rank) {
    {
      Accelerator accelerator(on_cpu());
      if (rank.rank == 1) accelerator.set_trigger();
      accelerator.save_state(folder / "state");
    }
    Accelerator accelerator(on_cpu());
    accelerator.load_state(folder / "state");
    EXPECT_TRUE(accelerator.check_trigger());
    EXPECT_FALSE(accelerator.check_trigger());
  });
}

TEST_F(StateHooks, ModelsAndObjectsAreWrittenByTheMainProcess) {
  run(2, [&](const Rank&) {
    Accelerator accelerator(on_cpu());
    auto net = std::make_shared<Mlp>();
    auto model = accelerator.prepare(net);
    accelerator.save_model(model, folder / "model");
    EXPECT_TRUE(load_state_dict(folder / "model")["second.bias"].equal(net->second->bias.cpu()));
    EXPECT_TRUE(accelerator.get_state_dict(model)["second.bias"].is_same(net->second->bias));
    accelerator.save(TorchDict{{"epoch", 3}}, folder / "object.bin");
    accelerator.wait_for_everyone();
    EXPECT_EQ(load_torch_archive(folder / "object.bin").as_dict().at("epoch").as_integer(), 3);
    std::ofstream(folder / "file") << "in the way";
    accelerator.wait_for_everyone();
    EXPECT_THAT(thrown_by<Error>([&] { accelerator.save_model(model, folder / "file"); }),
                HasSubstr("[rank 0 of 2]"));
  });
}

}  // namespace
}  // namespace accelerate::test
