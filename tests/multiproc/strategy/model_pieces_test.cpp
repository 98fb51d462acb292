// Models of which each rank keeps a part: trained, saved, resumed elsewhere, and put together.
#include <fstream>

#include "multiproc/state_nodes.h"
#include "multiproc/strategy/piece_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct ModelPieces : Ranks {
  StateFolder folder;
};

TEST_F(ModelPieces, AreTrainedAsWholeModelsAre) {
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [](const Rank& rank) {
      for (const int64_t steps : {1, 2}) {
        AcceleratorOptions in_pieces = sharded();
        AcceleratorOptions usual = on_cpu();
        in_pieces.gradient_accumulation.steps = usual.gradient_accumulation.steps = steps;
        PieceLoop own(in_pieces);
        PieceLoop whole(usual);
        own.train(0, 6);
        whole.train(0, 6);
        EXPECT_EQ(own.net->first->weight.numel(),
                  42 * (rank.rank + 1) / rank.world_size - 42 * rank.rank / rank.world_size);
        const std::vector<double> values = own.values();
        if (rank.rank == 0) EXPECT_TRUE(near(values, whole.values()));
        EXPECT_TRUE(near(own.norms, whole.norms));
      }
    });
  }
}

TEST_F(ModelPieces, AreSavedByEachRankAndResumedOnAnyNumber) {
  run(2, [&](const Rank& rank) {
    PieceLoop own(sharded());
    own.train(0, 3);
    own.accelerator.save_state(folder / "pieces");
    SaveTicket ticket = own.accelerator.save_state(folder / "beside", {.async = true});
    own.accelerator.save_state(folder / "archive", {.safe_serialization = false});
    own.train(3, 4);  // while it is written
    ticket.wait();
    if (rank.rank == 0) {
      EXPECT_FALSE(std::filesystem::exists(folder / "pieces" / "model.safetensors"));
      const SafetensorsFile first(folder / "pieces" / "model_pieces_0.safetensors");
      const SafetensorsFile last(folder / "pieces" / "model_pieces_1.safetensors");
      // 42 elements in rows of 6: the middle of a row lies between the ranks.
      EXPECT_EQ(first.info("0.0.first.weight").shape, (std::vector<int64_t>{3, 6}));
      EXPECT_EQ(first.info("0.1.first.weight").shape, (std::vector<int64_t>{1, 3}));
      EXPECT_EQ(last.info("0.0.first.weight").shape, (std::vector<int64_t>{1, 3}));
      EXPECT_EQ(last.info("0.1.first.weight").shape, (std::vector<int64_t>{3, 6}));
      EXPECT_TRUE(first.contains("0.0.seen"));
      EXPECT_FALSE(last.contains("0.0.seen"));
      EXPECT_FALSE(first.contains("0.0.factor"));
      EXPECT_TRUE(last.contains("0.0.factor"));
    }
    PieceLoop whole(on_cpu());
    whole.train(0, 3);
    whole.accelerator.save_state(folder / "whole");
    whole.accelerator.save_state(folder / "whole_archive", {.safe_serialization = false});
  });
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [&](const Rank& rank) {
      PieceLoop expected(on_cpu());
      expected.train(0, 6);
      const std::vector<double> values = expected.values();
      for (const char* saved : {"pieces", "beside", "archive", "whole", "whole_archive"}) {
        PieceLoop own(sharded());
        own.net->seen.zero_();
        own.accelerator.load_state(folder / saved);
        EXPECT_EQ(flat({own.net->seen}), (std::vector<double>{3, 4})) << saved;
        own.train(3, 6);
        const std::vector<double> own_values = own.values();
        if (rank.rank == 0) EXPECT_TRUE(near(own_values, values)) << saved;
        PieceLoop usual(on_cpu());
        usual.accelerator.load_state(folder / saved);
        usual.train(3, 6);
        EXPECT_TRUE(near(usual.values(), rank.rank == 0 ? values : std::vector<double>())) << saved;
      }
    });
  }
}

TEST_F(ModelPieces, ComeBackToTheBitOnAsManyRanks) {
  run(2, [&](const Rank&) {
    PieceLoop own(sharded());
    own.train(0, 2).accelerator.save_state(folder / "exact");
    const std::vector<double> next = own.train(2, 4).values();
    PieceLoop again(sharded());
    again.accelerator.load_state(folder / "exact");
    EXPECT_EQ(again.train(2, 4).values(), next);
  });
}

TEST_F(ModelPieces, InAnOpenWindowAreResumedOnAnyNumberOfRanks) {
  const auto in_windows = [](AcceleratorOptions options) {
    options.gradient_accumulation.steps = 2;
    return options;
  };
  run(2, [&](const Rank&) {
    PieceLoop own(in_windows(sharded()));
    own.train(0, 3).accelerator.save_state(folder / "window");
  });
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [&](const Rank& rank) {
      PieceLoop expected(in_windows(on_cpu()));
      expected.train(0, 6);
      PieceLoop own(in_windows(sharded()));
      own.train(0, 2).accelerator.load_state(folder / "window");
      own.train(3, 6);
      const std::vector<double> values = own.values();
      if (rank.rank == 0) EXPECT_TRUE(near(values, expected.values()));
    });
  }
}

TEST_F(ModelPieces, AreOneModelWhenItIsSaved) {
  run(2, [&](const Rank& rank) {
    PieceLoop own(sharded());
    own.train(0, 2);
    for (const bool safe : {true, false}) {
      for (const std::string size : {"10GB", "0.1KB"}) {
        const auto model = folder / ("model_" + size + (safe ? "_safe" : "_archive"));
        own.accelerator.save_model(*own.model, model,
                                   {.max_shard_size = size, .safe_serialization = safe});
        auto loaded = std::make_shared<PieceNet>();
        for (at::Tensor& parameter : loaded->parameters()) torch::nn::init::zeros_(parameter);
        const LoadReport report = load_checkpoint_in_model(*loaded, model, {.strict = true});
        EXPECT_THAT(report.missing_keys, IsEmpty());
        const ModelStateDict state = own.accelerator.get_state_dict(*own.model);
        EXPECT_EQ(state.size(), rank.rank == 0 ? 7 : 0);
        for (const auto& item : state) {
          EXPECT_TRUE(item.value().cpu().equal(get_state_dict(*loaded)[item.key()].cpu()))
              << item.key();
        }
        if (rank.rank == 0) {
          EXPECT_TRUE(state["second.bias"].is_same(state["same_bias"]));
          EXPECT_EQ(std::filesystem::exists(model / "model.safetensors"), safe && size == "10GB");
        }
      }
    }
    own.train(2, 3);  // goes on as before
  });
}

TEST_F(ModelPieces, OfASavedStateAreMerged) {
  run(2, [&](const Rank& rank) {
    PieceLoop own(sharded());
    own.train(0, 2).accelerator.save_state(folder / "state");
    const ModelStateDict state = own.accelerator.get_state_dict(*own.model);
    if (rank.rank != 0) return;
    const MergeWeightsReport report = merge_weights(folder / "state", folder / "merged");
    EXPECT_EQ(report.tensors, 6);
    const ModelStateDict merged = load_state_dict(folder / "merged");
    EXPECT_EQ(merged.size(), state.size());
    for (const auto& item : state) EXPECT_TRUE(item.value().cpu().equal(merged[item.key()]));
    EXPECT_THAT(
        [&] {
          try {
            PieceNet net;
            load_checkpoint_in_model(net, folder / "state");
          } catch (const CheckpointError& error) {
            return std::string(error.what());
          }
          return std::string();
        }(),
        HasSubstr("the model in this folder is in pieces"));
  });
}

TEST_F(ModelPieces, OnNodesOfTheirOwnNameTheFileThatIsMissing) {
  run(2, [&](const Rank& rank) {
    become_node(rank.rank);
    PieceLoop own(sharded(project_of_node(folder, rank.rank)));
    own.train(0, 1).accelerator.save_state();
    EXPECT_EQ(own.refusal({}), "");  // each rank has what it needs
    own.train(1, 2);
    // Both write files of their own.
    EXPECT_EQ(own.accelerator.get_state_dict(*own.model).size(), 7);
    own.accelerator.save_model(*own.model, folder / ("model_of_" + std::to_string(rank.rank)));
    PieceNet net;
    EXPECT_THAT(load_checkpoint_in_model(net, folder / ("model_of_" + std::to_string(rank.rank)))
                    .missing_keys,
                IsEmpty());
  });
  run(1, [&](const Rank&) {
    const auto state = folder / "node_0" / "checkpoints" / "checkpoint_0";
    PieceLoop elsewhere(on_cpu());
    EXPECT_THAT(elsewhere.refusal(state),
                AllOf(HasSubstr("the pieces of \"first.weight\" do not make the whole"),
                      HasSubstr("\"factor\" is in none of the files that are here"),
                      HasSubstr("model_pieces_1.safetensors is missing")));
    try {
      merge_weights(state, folder / "merged");
      ADD_FAILURE() << "merged half a model";
    } catch (const CheckpointError& error) {
      EXPECT_THAT(error.what(), HasSubstr("model_pieces_1.safetensors is not here"));
    }
  });
}

TEST_F(ModelPieces, ThatAreDamagedOrGoneAreNamed) {
  run(2, [&](const Rank& rank) {
    PieceLoop own(sharded());
    for (const char* name : {"damaged", "cut", "gone"}) own.accelerator.save_state(folder / name);
    const std::string file = "model_pieces_1.safetensors";
    if (rank.rank == 0) {
      std::fstream damaged(folder / "damaged" / file,
                           std::ios::in | std::ios::out | std::ios::binary);
      damaged.seekp(-1, std::ios::end);
      damaged.put('\x55');
      damaged.close();
      std::filesystem::resize_file(folder / "cut" / file, 20);
      std::filesystem::remove(folder / "gone" / file);
    }
    own.accelerator.wait_for_everyone();
    const std::vector<double> before = own.values();
    for (const char* name : {"damaged", "cut", "gone"}) {
      EXPECT_THAT(own.refusal(folder / name), HasSubstr(file)) << name;
    }
    EXPECT_EQ(own.values(), before);
  });
}

TEST_F(ModelPieces, OfOtherShapesAreRefused) {
  struct Narrow : torch::nn::Module {
    explicit Narrow(int64_t size)
        : weight(register_parameter("weight", torch::ones({size, 2}, test_device()))) {}
    at::Tensor forward(const at::Tensor& input) { return input + weight.sum(); }
    at::Tensor weight;
  };
  run(2, [&](const Rank&) {
    Accelerator accelerator(sharded());
    auto model = accelerator.prepare(std::make_shared<Narrow>(4));
    accelerator.save_state(folder / "narrow");
    for (const bool in_pieces : {true, false}) {
      Accelerator other(in_pieces ? sharded() : on_cpu());
      auto wide = other.prepare(std::make_shared<Narrow>(5));
      try {
        other.load_state(folder / "narrow");
        ADD_FAILURE() << "loaded a tensor of another shape";
      } catch (const CheckpointError& error) {
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("weight [4, 2] in the checkpoint, [5, 2] in the model")));
      }
    }
  });
}

TEST_F(ModelPieces, ReachHooksWithTheirPlaces) {
  run(2, [&](const Rank& rank) {
    PieceLoop own(sharded());
    auto hook = own.accelerator.register_save_state_pre_hook(
        [&](std::vector<ModelToSave>& models, const std::filesystem::path&) {
          const TensorLayout& layout = models[0].layout.at("second.bias");
          EXPECT_EQ(layout.shape, std::vector<int64_t>{3});
          EXPECT_THAT(layout.boxes,
                      ElementsAre(TensorBox{.start = {rank.rank}, .shape = {1 + rank.rank}}));
          at::Tensor& part = models[0].weights["second.bias"];
          part = torch::full_like(part, 8);
          models[0].weights["same_bias"] = part;
        });
    own.accelerator.save_state(folder / "hooked");
    PieceLoop usual(on_cpu());
    usual.accelerator.load_state(folder / "hooked");
    EXPECT_EQ(flat({usual.net->second->bias}), (std::vector<double>{8, 8, 8}));
  });
}

TEST_F(ModelPieces, AreNotTakenForWholeModels) {
  run(2, [&](const Rank&) {
    PieceLoop own(sharded());
    EXPECT_THAT(usage_error([&] { torch::save(*own.model, (folder / "net.pt").string()); }),
                AllOf(HasSubstr("this rank holds a piece of 'factor'"), HasSubstr("torch::save")));
    EXPECT_THAT(usage_error([&] {
                  LocalSgd local(own.accelerator.communicator(), own.net->parameters(),
                                 own.model->strategy(), {.local_sgd_steps = 2});
                }),
                AllOf(HasSubstr("this rank holds a piece of 'factor'"), HasSubstr("LocalSgd")));
  });
}

TEST_F(ModelPieces, AFlatModelIsSavedWithTheValuesOfItsMasters) {
  for (const int ranks : {1, 2}) {
    run(ranks, [&](const Rank& rank) {
      AcceleratorOptions options = on_cpu();
      options.mixed_precision = MixedPrecision::kBf16;
      options.flat = FlatOptions{};
      PieceLoop half(options);
      half.train(0, 3);
      EXPECT_EQ(half.net->first->weight.scalar_type(), at::kBFloat16);
      {
        const torch::NoGradGuard no_grad;
        half.net->first->bias.fill_(0.5);  // in place: the masters take it over
      }
      const ModelStateDict state = half.accelerator.get_state_dict(*half.model);
      EXPECT_EQ(flat({state["first.bias"]}), std::vector<double>(7, 0.5));
      EXPECT_NE(flat({state["first.weight"]}), flat({half.net->first->weight}));
      half.accelerator.save_model(*half.model, folder / "flat");
      half.accelerator.save_state(folder / "flat_state");
      if (rank.rank != 0) return;
      const ModelStateDict saved = load_state_dict(folder / "flat");
      const ModelStateDict in_state = load_state_dict(folder / "flat_state");
      for (const auto& item : state) {
        EXPECT_EQ(item.value().scalar_type(), at::kFloat) << item.key();
        EXPECT_TRUE(saved[item.key()].equal(item.value().cpu())) << item.key();
        EXPECT_TRUE(in_state[item.key()].equal(item.value().cpu())) << item.key();
      }
    });
  }
}

}  // namespace
}  // namespace accelerate::test
