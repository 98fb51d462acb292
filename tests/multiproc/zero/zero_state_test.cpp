// States of sharded trainings, resumed on other numbers of ranks and by other strategies.
#include <filesystem>

#include "multiproc/state_folder.h"
#include "multiproc/zero/zero_training.h"

namespace accelerate::test {
namespace {

using testing::HasSubstr;

struct ZeroState : Ranks {
  StateFolder folder;
};

// Strategy of a run by its name: "ddp" or "zero" and a stage.
AcceleratorOptions zero_or_ddp(const std::string& name) {
  return name == "ddp" ? replicated() : zero(name.back() - '0', with_unused());
}

std::vector<std::string> all_strategies() {
  std::vector<std::string> names{"ddp"};
  for (const int stage : zero_stages()) names.push_back("zero" + std::to_string(stage));
  return names;
}

TEST_F(ZeroState, IsResumedOnAnyNumberOfRanksByAnyStrategy) {
  const std::vector<std::string> strategies = all_strategies();
  const ZeroRecipe recipe{.optimizer = "rmsprop"};
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [&](const Rank& rank) {
      for (const std::string& strategy : strategies) {
        ZeroLoop loop(zero_or_ddp(strategy), recipe);
        loop.train(0, 3).accelerator.save_state(folder /
                                                (strategy + std::to_string(rank.world_size)));
      }
    });
  }
  for (const int ranks : {1, 2, 4}) {
    run(ranks, [&](const Rank&) {
      ZeroLoop whole(zero_or_ddp("ddp"), recipe);
      const std::vector<double> expected = whole.train(0, 6).values();
      for (const std::string& saved_by : strategies) {
        for (const std::string& strategy : strategies) {
          for (const char* saved_on : {"1", "2", "3"}) {
            ZeroLoop loop(zero_or_ddp(strategy), recipe);
            loop.accelerator.load_state(folder / (saved_by + saved_on));
            EXPECT_EQ(loop.optimizer->step_count(), 3);
            EXPECT_TRUE(near(loop.train(3, 6).values(), expected))
                << saved_by << " on " << saved_on << " to " << strategy;
          }
        }
      }
    });
  }
}

TEST_F(ZeroState, ComesBackToTheBitOnAsManyRanks) {
  run(3, [&](const Rank& rank) {
    for (const int stage : zero_stages()) {
      const auto saved = folder / ("exact" + std::to_string(stage));
      ZeroLoop own(zero(stage, with_unused()));
      own.train(0, 2);
      SaveTicket ticket = own.accelerator.save_state(saved, {.async = true});
      const std::vector<double> next = own.train(2, 4).values();
      ticket.wait();
      ZeroLoop again(zero(stage, with_unused()));
      again.train(5, 6).accelerator.load_state(saved);  // what it had before does not count
      EXPECT_EQ(again.train(2, 4).values(), next) << "stage " << stage;
      if (rank.rank == 0) {
        EXPECT_EQ(std::filesystem::exists(saved / "model.safetensors"), stage < 3);
        EXPECT_EQ(std::filesystem::exists(saved / "model_pieces_2.safetensors"), stage == 3);
        EXPECT_TRUE(std::filesystem::exists(saved / "optimizer_pieces_2.safetensors"));
      }
    }
  });
}

// Each rank writes its share of what the optimizer keeps.
TEST_F(ZeroState, OfAnOptimizerIsWrittenInShares) {
  run(2, [&](const Rank& rank) {
    for (const int stage : zero_stages()) {
      const auto saved = folder / ("shares" + std::to_string(stage));
      ZeroLoop own(zero(stage, with_unused()));
      own.train(0, 1).accelerator.save_state(saved);
      const SafetensorsFile file(
          saved / ("optimizer_pieces_" + std::to_string(rank.rank) + ".safetensors"));
      int64_t elements = 0, all = 0;
      for (const std::string& name : file.names()) {
        if (name.find("exp_avg_sq") == std::string::npos) continue;
        int64_t numel = 1;
        for (const int64_t size : file.info(name).shape) numel *= size;
        elements += numel;
      }
      for (const at::Tensor& parameter : distinct(own.net->parameters())) {
        if (parameter.grad().defined() || parameter.requires_grad()) all += parameter.numel();
      }
      EXPECT_GT(elements, 0);
      EXPECT_LT(elements, 2 * all / 3);
    }
  });
}

TEST_F(ZeroState, InAnOpenWindowIsResumedOnAnyNumberOfRanks) {
  const std::vector<std::string> strategies = all_strategies();
  const auto in_windows = [](AcceleratorOptions options, bool each) {
    options.gradient_accumulation.steps = 2;
    options.gradient_accumulation.sync_each_batch = each;
    return options;
  };
  run(2, [&](const Rank&) {
    for (const bool each : {false, true}) {
      for (const int stage : zero_stages()) {
        ZeroLoop own(in_windows(zero(stage, with_unused()), each));
        own.train(0, 3).accelerator.save_state(
            folder / ("window" + std::to_string(stage) + (each ? "e" : "")));
      }
    }
  });
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [&](const Rank&) {
      ZeroLoop whole(in_windows(replicated(), false));
      const std::vector<double> expected = whole.train(0, 6).values();
      for (const bool each : {false, true}) {
        for (const int stage : zero_stages()) {
          for (const std::string& strategy : strategies) {
            ZeroLoop loop(in_windows(zero_or_ddp(strategy), each));
            loop.train(0, 1).accelerator.load_state(
                folder / ("window" + std::to_string(stage) + (each ? "e" : "")));
            EXPECT_TRUE(near(loop.train(3, 6).values(), expected))
                << "stage " << stage << " to " << strategy << (each ? ", each batch" : "");
          }
        }
      }
    });
  }
}

TEST_F(ZeroState, OfAModelIsThatOfAnyOther) {
  run(2, [&](const Rank& rank) {
    for (const int stage : zero_stages()) {
      const auto saved = folder / ("model" + std::to_string(stage));
      ZeroLoop own(zero(stage, with_unused()));
      own.train(0, 2).accelerator.save_model(*own.model, saved);
      const ModelStateDict state = own.accelerator.get_state_dict(*own.model);
      if (rank.rank != 0) continue;
      auto loaded = std::make_shared<OddNet>();
      const LoadReport report = load_checkpoint_in_model(*loaded, saved, {.strict = true});
      EXPECT_THAT(report.missing_keys, testing::IsEmpty());
      for (const auto& item : state) {
        EXPECT_TRUE(item.value().cpu().equal(get_state_dict(*loaded)[item.key()].cpu()))
            << item.key();
      }
    }
  });
}

}  // namespace
}  // namespace accelerate::test
