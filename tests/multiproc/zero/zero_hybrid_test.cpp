// Shards inside of groups of ranks, replicas across them.
#include <filesystem>

#include "multiproc/state_folder.h"
#include "multiproc/zero/zero_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int kHybridSteps = 5;

struct ZeroHybrid : Ranks {
  StateFolder folder;
};

struct HybridSizes {
  std::optional<int> shard{};
  std::optional<int> replicate{};
};

AcceleratorOptions hybrid(int stage, const HybridSizes& sizes, const DdpOptions& ddp = {}) {
  AcceleratorOptions options = zero(stage);
  options.strategy = ZeroOptions{.stage = stage,
                                 .ddp = ddp,
                                 .dp_shard_size = sizes.shard,
                                 .dp_replicate_size = sizes.replicate};
  return options;
}
AcceleratorOptions two_by_two(int stage) { return hybrid(stage, {.shard = 2}, with_unused()); }

TEST_F(ZeroHybrid, EndsWithTheParametersOfOneProcess) {
  run(4, [](const Rank&) {
    for (const ZeroRecipe& recipe :
         {ZeroRecipe{.max_norm = 0.05},
          ZeroRecipe{.optimizer = "adam", .forwards = 3, .max_value = 0.01}}) {
      const std::vector<double> expected = train_alone(recipe, kHybridSteps);
      for (const int stage : zero_stages()) {
        for (const HybridSizes& sizes : {HybridSizes{.shard = 2}, HybridSizes{.replicate = 2},
                                         HybridSizes{.shard = 1, .replicate = 4}}) {
          ZeroLoop own(hybrid(stage, sizes, with_unused()), recipe);
          EXPECT_EQ(own.accelerator.strategy_name(), "zero");
          EXPECT_TRUE(near(own.train(0, kHybridSteps).values(), expected))
              << "stage " << stage << ", " << recipe.optimizer << ", shards "
              << sizes.shard.value_or(0);
        }
      }
    }
  });
}

TEST_F(ZeroHybrid, WithOneCopyIsPlainSharding) {
  run(2, [](const Rank&) {
    for (const int stage : zero_stages()) {
      ZeroLoop usual(zero(stage, with_unused()));
      const std::vector<double> expected = usual.train(0, kHybridSteps).values();
      for (const HybridSizes& sizes : {HybridSizes{.shard = 2}, HybridSizes{.replicate = 1}}) {
        ZeroLoop own(hybrid(stage, sizes, with_unused()));
        EXPECT_EQ(own.train(0, kHybridSteps).values(), expected) << "stage " << stage;
      }
    }
  });
}

TEST_F(ZeroHybrid, WithACopyOnEachRankIsDdpToTheLastBitOnTwoRanks) {
  run(2, [](const Rank&) {
    ZeroLoop usual(replicated());
    const std::vector<double> expected = usual.train(0, kHybridSteps).values();
    for (const int stage : zero_stages()) {
      ZeroLoop own(hybrid(stage, {.replicate = 2}, with_unused()));
      EXPECT_EQ(own.train(0, kHybridSteps).values(), expected) << "stage " << stage;
    }
  });
}

TEST_F(ZeroHybrid, SendsGradientsInTheTypeThatIsNamed) {
  run(4, [](const Rank&) {
    for (const int stage : {2, 3}) {
      ZeroLoop usual(two_by_two(stage));
      const std::vector<double> expected = usual.train(0, 3).values();
      const auto reduced = [stage](at::ScalarType type) {
        AcceleratorOptions options = zero(stage);
        options.strategy = ZeroOptions{
            .stage = stage, .reduce_dtype = type, .ddp = with_unused(), .dp_shard_size = 2};
        return ZeroLoop(options, {.optimizer = "adamw"}).train(0, 3).values();
      };
      const std::vector<double> in_float = reduced(at::kFloat);
      const std::vector<double> in_half = reduced(at::kBFloat16);
      EXPECT_TRUE(near(in_float, expected)) << "stage " << stage;
      EXPECT_NE(in_half, expected) << "stage " << stage;
      EXPECT_TRUE(near(in_half, expected, 0.1)) << "stage " << stage;
    }
  });
}

TEST_F(ZeroHybrid, ClipsScalesAndAccumulatesAsDdpDoes) {
  run(4, [](const Rank&) {
    const auto scaled = [](AcceleratorOptions options) {
      options.mixed_precision = MixedPrecision::kFp16;
      options.grad_scaler.init_scale = 1024;
      return options;
    };
    const auto each = [](AcceleratorOptions options) {
      options.gradient_accumulation.sync_each_batch = true;
      return options;
    };
    const ZeroRecipe clipped{.max_norm = 0.02};
    ZeroLoop usual(replicated(), clipped), half(scaled(replicated()), clipped),
        windows(in_windows(replicated(), 2), clipped);
    const std::vector<double> expected = usual.train(0, kHybridSteps).values();
    const std::vector<double> expected_half = half.train(0, kHybridSteps).values();
    const std::vector<double> expected_windows = windows.train(0, 6).values();
    for (const int stage : zero_stages()) {
      ZeroLoop own(two_by_two(stage), clipped), own_half(scaled(two_by_two(stage)), clipped),
          own_windows(in_windows(two_by_two(stage), 2), clipped),
          own_each(each(in_windows(two_by_two(stage), 2)), clipped);
      EXPECT_TRUE(near(own.train(0, kHybridSteps).values(), expected)) << "stage " << stage;
      EXPECT_TRUE(near(own.norms, usual.norms, 1e-6)) << "stage " << stage;
      EXPECT_TRUE(near(own_half.train(0, kHybridSteps).values(), expected_half, 2e-3))
          << "stage " << stage;
      EXPECT_TRUE(near(own_windows.train(0, 6).values(), expected_windows)) << "stage " << stage;
      EXPECT_TRUE(near(own_each.train(0, 6).values(), expected_windows)) << "stage " << stage;
    }
  });
}

TEST_F(ZeroHybrid, ThatOverflowsOnOneRankStepsOnNone) {
  struct LongRow : torch::nn::Module {
    LongRow() : row(register_parameter("row", torch::ones({256}, test_device()))) {}
    at::Tensor forward(const at::Tensor& factors) { return (row * factors).sum(); }
    at::Tensor row;
  };
  run(4, [](const Rank& rank) {
    for (const int stage : zero_stages()) {
      AcceleratorOptions options = hybrid(stage, {.shard = 2});
      options.mixed_precision = MixedPrecision::kFp16;
      options.grad_scaler.init_scale = 1024;
      Accelerator accelerator(options);
      auto net = std::make_shared<LongRow>();
      auto [model, optimizer] =
          accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1));
      const auto step = [&, &model = model, &optimizer = optimizer](double last) {
        at::Tensor factors = torch::ones({256}, test_device());
        if (rank.rank == 2) factors[255] = last;  // in the second copy, of its second shard
        accelerator.backward(model(factors));
        optimizer.step();
        optimizer.zero_grad();
        return accelerator.optimizer_step_was_skipped();
      };
      EXPECT_TRUE(step(std::numeric_limits<double>::infinity())) << "stage " << stage;
      EXPECT_EQ(values_of({net->row}), std::vector<double>(256, 1.0));
      EXPECT_FALSE(step(1));
    }
  });
}

TEST_F(ZeroHybrid, StateIsWrittenByOneCopyAndResumedByAny) {
  const auto options_of = [](const std::string& name) {
    if (name == "ddp") return replicated();
    const int stage = name.back() - '0';
    return name.starts_with("hybrid") ? two_by_two(stage) : zero(stage, with_unused());
  };
  std::vector<std::string> names{"ddp"};
  for (const int stage : zero_stages()) {
    names.push_back("hybrid" + std::to_string(stage));
    names.push_back("zero" + std::to_string(stage));
  }
  run(4, [&](const Rank& rank) {
    for (const std::string& name : names) {
      ZeroLoop loop(options_of(name));
      loop.train(0, 3).accelerator.save_state(folder / name);
      if (rank.rank != 0 || !name.starts_with("hybrid")) continue;
      for (const char* kind : {"model", "optimizer"}) {
        for (const int piece_of : {0, 1, 2, 3}) {
          const bool is_there = piece_of < 2 && (kind[0] == 'o' || name.back() == '3');
          EXPECT_EQ(std::filesystem::exists(folder / name /
                                            (std::string(kind) + "_pieces_" +
                                             std::to_string(piece_of) + ".safetensors")),
                    is_there)
              << name << kind << piece_of;
        }
      }
    }
  });
  for (const int ranks : {1, 2, 4}) {
    run(ranks, [&](const Rank& rank) {
      ZeroLoop whole(replicated());
      const std::vector<double> expected = whole.train(0, 6).values();
      for (const std::string& saved : names) {
        for (const std::string& name : names) {
          const bool is_hybrid = name.starts_with("hybrid") && rank.world_size > 1;
          if (!is_hybrid && !saved.starts_with("hybrid")) continue;
          if (name.starts_with("hybrid") && rank.world_size == 1) continue;
          ZeroLoop loop(options_of(name));
          loop.accelerator.load_state(folder / saved);
          EXPECT_EQ(loop.optimizer->step_count(), 3);
          EXPECT_TRUE(near(loop.train(3, 6).values(), expected)) << saved << " to " << name;
        }
      }
    });
  }
}

TEST_F(ZeroHybrid, ComesBackToTheBitAndWithItsWindow) {
  run(4, [&](const Rank&) {
    for (const bool each : {false, true}) {
      for (const int stage : zero_stages()) {
        AcceleratorOptions options = in_windows(two_by_two(stage), 2);
        options.gradient_accumulation.sync_each_batch = each;
        const auto saved = folder / ("exact" + std::to_string(stage) + (each ? "e" : ""));
        ZeroLoop own(options);
        own.train(0, 3);
        SaveTicket ticket = own.accelerator.save_state(saved, {.async = true});
        ticket.wait();
        const std::vector<double> next = own.train(3, 6).values();
        ZeroLoop again(options);
        again.train(7, 8).accelerator.load_state(saved);
        const std::vector<double> resumed = again.train(3, 6).values();
        // Sums of micro-batches that were averaged one by one are rounded in another order.
        EXPECT_TRUE(near(resumed, next, each ? 1e-6 : 0)) << "stage " << stage << each;
      }
    }
  });
}

TEST_F(ZeroHybrid, ModelIsSavedAndWholeForAScope) {
  run(4, [&](const Rank& rank) {
    for (const int stage : zero_stages()) {
      const auto saved = folder / ("model" + std::to_string(stage));
      ZeroLoop own(two_by_two(stage));
      own.train(0, 2);
      const std::vector<double> before = own.values();
      {
        auto whole =
            own.accelerator.full_parameters(*own.model, {.write_back = true, .from_rank = 3});
        if (rank.rank == 3) {
          const torch::NoGradGuard no_grad;
          for (at::Tensor& parameter : distinct(own.net->parameters())) parameter.mul_(2);
        }
        whole.end();
      }
      std::vector<double> twice = before;
      for (double& value : twice) value *= 2;
      EXPECT_EQ(own.values(), twice) << "stage " << stage;
      own.accelerator.save_model(*own.model, saved);
      const ModelStateDict state = own.accelerator.get_state_dict(*own.model);
      if (rank.rank != 0) continue;
      auto loaded = std::make_shared<OddNet>();
      load_checkpoint_in_model(*loaded, saved, {.strict = true});
      EXPECT_EQ(values_of(distinct(loaded->parameters())), twice) << "stage " << stage;
      for (const auto& item : state) {
        EXPECT_TRUE(item.value().cpu().equal(get_state_dict(*loaded)[item.key()].cpu()))
            << item.key();
      }
    }
  });
}

std::string hybrid_refusal(StrategyOptions strategy) {
  AcceleratorOptions options = on_cpu();
  options.strategy = std::move(strategy);
  return usage_error([&] { Accelerator accelerator(options); });
}

TEST_F(ZeroHybrid, RefusesSizesThatDoNotFitAndNamesThem) {
  run(4, [](const Rank& rank) {
    EXPECT_THAT(hybrid_refusal(ZeroOptions{.dp_shard_size = 2, .dp_replicate_size = 4}),
                AllOf(HasSubstr("dp_shard_size = 2 and dp_replicate_size = 4 do not fit 4 "
                                "processes"),
                      HasSubstr("ZeroOptions::dp_shard_size")));
    EXPECT_THAT(hybrid_refusal(ZeroOptions{.stage = 3, .dp_shard_size = 3}),
                HasSubstr("dp_shard_size = 3 and dp_replicate_size unset do not fit"));
    EXPECT_THAT(hybrid_refusal(ZeroOptions{.stage = 1, .dp_replicate_size = 8}),
                HasSubstr("dp_shard_size unset and dp_replicate_size = 8 do not fit"));
    EXPECT_THAT(hybrid_refusal(ZeroOptions{.dp_shard_size = 0}), HasSubstr("do not fit"));
    EXPECT_THAT(hybrid_refusal(FsdpOptions{.dp_replicate_size = 3}), HasSubstr("do not fit"));
    EXPECT_THAT(hybrid_refusal(
                    FsdpOptions{.sharding_strategy = FsdpSharding::kNoShard, .dp_shard_size = 2}),
                HasSubstr("kNoShard with dp_shard_size or dp_replicate_size"));
    Accelerator accelerator(rank.rank == 1 ? hybrid(2, {.shard = 2}) : zero(2));
    EXPECT_THAT(usage_error([&] { (void)accelerator.prepare(odd_net()); }),
                AllOf(HasSubstr("ZeroOptions::dp_shard_size"), HasSubstr("rank 1")));
  });
  run(1, [](const Rank&) {
    EXPECT_THAT(hybrid_refusal(ZeroOptions{.dp_shard_size = 2}), HasSubstr("do not fit 1 process"));
  });
}

TEST_F(ZeroHybrid, OfFsdpSharesInsideOfAMachine) {
  run(4, [&](const Rank& rank) {
    // Two machines of two ranks.
    setenv("LOCAL_RANK", std::to_string(rank.rank % 2).c_str(), 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
    setenv("GROUP_RANK", std::to_string(rank.rank / 2).c_str(), 1);
    ZeroLoop usual(replicated());
    const std::vector<double> expected = usual.train(0, 3).values();
    for (const FsdpSharding sharding :
         {FsdpSharding::kHybridShard, FsdpSharding::kHybridShardZero2}) {
      AcceleratorOptions options = zero(3);
      options.strategy = FsdpOptions{.sharding_strategy = sharding};
      ZeroLoop own(options);
      EXPECT_TRUE(near(own.train(0, 3).values(), expected));
      const bool shards_parameters = sharding == FsdpSharding::kHybridShard;
      const auto saved = folder / (shards_parameters ? "hybrid" : "hybrid_zero2");
      own.accelerator.save_state(saved);
      if (rank.rank != 0) continue;
      EXPECT_EQ(std::filesystem::exists(saved / "model_pieces_1.safetensors"), shards_parameters);
      EXPECT_TRUE(std::filesystem::exists(saved / "optimizer_pieces_1.safetensors"));
      EXPECT_FALSE(std::filesystem::exists(saved / "optimizer_pieces_2.safetensors"));
    }
  });
}

TEST_F(ZeroHybrid, CopiesThatDifferAreNotSaved) {
  run(4, [&](const Rank& rank) {
    ZeroLoop own(two_by_two(3));
    own.train(0, 1);
    {
      auto whole = own.accelerator.full_parameters(*own.model, {.write_back = true});
      const torch::NoGradGuard no_grad;
      if (rank.rank >= 2) own.net->head->weight.mul_(2);  // not the same on all ranks
      whole.end();
    }
    EXPECT_THAT(
        usage_error([&] { own.accelerator.save_state(folder / "never"); }),
        AllOf(HasSubstr("'head.weight' of model 0 differs between rank"), HasSubstr("and rank")));
    EXPECT_FALSE(std::filesystem::exists(folder / "never"));
  });
}

// A strategy of the user's whose ranks have all of each parameter as one piece.
struct CopiedPieces : Strategy {
  struct Model : ModelStrategy {
    explicit Model(std::shared_ptr<torch::nn::Module> own) : module(std::move(own)) {}
    ModelLayout layout() const override {
      ModelLayout layout;
      for (const auto& item : module->named_parameters()) {
        const auto shape = item.value().sizes();
        layout[item.key()] = {.shape = shape.vec(),
                              .boxes = boxes_of_range(shape, 0, item.value().numel())};
      }
      return layout;
    }
    std::shared_ptr<torch::nn::Module> module;
  };
  struct Factory : StrategyFactory {
    std::unique_ptr<Strategy> make(const StrategyContext&) const override {
      return std::make_unique<CopiedPieces>();
    }
  };
  std::string_view name() const override { return "copied"; }
  std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) override {
    return std::make_shared<Model>(std::move(module));
  }
  std::optional<int> ranks_of_one_copy() const override { return 1; }
};

TEST_F(ZeroHybrid, CopiesOfAnyStrategyAreLeftOut) {
  run(2, [&](const Rank& rank) {
    AcceleratorOptions options = on_cpu();
    options.strategy = std::make_shared<CopiedPieces::Factory>();
    Accelerator accelerator(options);
    torch::manual_seed(1);
    auto net = std::make_shared<Mlp>();
    auto model = accelerator.prepare(net);
    const std::vector<double> saved = flat(net->parameters());
    accelerator.save_state(folder / "copied");
    EXPECT_EQ(std::filesystem::exists(folder / "copied" / "model_pieces_0.safetensors"), true);
    EXPECT_EQ(std::filesystem::exists(folder / "copied" / "model_pieces_1.safetensors"), false);
    {
      const torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : net->parameters()) parameter.zero_();
    }
    accelerator.load_state(folder / "copied");
    EXPECT_EQ(flat(net->parameters()), saved) << rank.rank;
  });
}

}  // namespace
}  // namespace accelerate::test
