// Models that are never whole on a rank: built without memory, and given to stage 3 so.
#include "multiproc/state_folder.h"
#include "multiproc/zero/counted_memory.h"
#include "multiproc/zero/zero_training.h"
#include "transformers/small_models.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct ZeroEmpty : Ranks {
  StateFolder folder;
};

// As odd_net(), with random numbers from `seed`.
std::shared_ptr<OddNet> empty_odd_net(uint64_t seed) {
  torch::manual_seed(seed);
  const auto empty = init_empty_weights();
  return std::make_shared<OddNet>();
}

AcceleratorOptions zero_for(int stage, const std::optional<int>& shard_size,
                            const ZeroUnits& units = {}) {
  AcceleratorOptions options = zero(stage);
  options.strategy = ZeroOptions{
      .stage = stage, .ddp = with_unused(), .units = units, .dp_shard_size = shard_size};
  return options;
}

TEST_F(ZeroEmpty, ModelsAreInitialisedAsByOneProcessWithTheSeedOfRankZero) {
  for (const int ranks : {1, 3, 4}) {
    run(ranks, [](const Rank& rank) {
      const std::vector<double> expected = values_of(distinct(odd_net()->parameters()));
      ZeroLoop usual(replicated());
      const std::vector<double> trained = usual.train(0, 3).values();
      const std::optional<int> pairs = rank.world_size == 4 ? std::optional<int>(2) : std::nullopt;
      for (const ZeroUnits& units :
           {ZeroUnits{}, ZeroUnits{.persistence_threshold = 50}, ZeroUnits{.modules = {"*"}}}) {
        ZeroLoop own(zero_for(3, pairs, units), {},
                     empty_odd_net(rank.rank == 0 ? 11 : 100 + rank.rank));
        EXPECT_EQ(own.values(), expected);
        EXPECT_EQ(own.net->scale.item<float>(), 1.5);
        EXPECT_TRUE(near(own.train(0, 3).values(), trained));
        EXPECT_EQ(own.net->calls.item<int64_t>(), 3);
      }
      // Whole on each rank.
      for (const int stage : {1, 2}) {
        ZeroLoop own(zero_for(stage, pairs), {}, empty_odd_net(11));
        EXPECT_TRUE(near(own.train(0, 3).values(), trained)) << "stage " << stage;
      }
      ZeroLoop ddp(replicated(), {}, empty_odd_net(rank.rank == 0 ? 11 : 100 + rank.rank));
      EXPECT_EQ(ddp.train(0, 3).values(), trained);
    });
  }
}

TEST_F(ZeroEmpty, ModelsAreLoadedFromFiles) {
  run(1, [&](const Rank&) {
    ZeroLoop saved(replicated());
    saved.train(0, 2);
    save_model(*saved.net, folder / "whole");
    save_model(*saved.net, folder / "shards", {.max_shard_size = 1000});
    save_model(*saved.net, folder / "archive", {.safe_serialization = false});
  });
  for (const int ranks : {2, 4}) {
    run(ranks, [&](const Rank& rank) {
      for (const char* kind : {"whole", "shards", "archive"}) {
        const auto loaded = odd_net();
        load_checkpoint_in_model(*loaded, folder / kind, {.strict = true});
        const std::vector<double> expected = values_of(distinct(loaded->parameters()));
        ZeroLoop usual(replicated(), {}, loaded);
        const auto net = empty_odd_net(static_cast<uint64_t>(rank.rank));
        load_checkpoint_in_model(*net, folder / kind, {.strict = true});
        ZeroLoop own(zero_for(3, rank.world_size == 4 ? std::optional<int>(2) : std::nullopt), {},
                     net);
        EXPECT_EQ(own.values(), expected) << kind;
        EXPECT_TRUE(near(own.train(0, 3).values(), usual.train(0, 3).values())) << kind;
      }
    });
  }
}

TEST_F(ZeroEmpty, ModelsGetTheValuesOfRankZero) {
  run(3, [&](const Rank& rank) {
    const auto expected = [&] {
      const auto net = odd_net();
      const torch::NoGradGuard no_grad;
      for (at::Tensor& parameter : net->parameters()) parameter.add_(0.25);
      return net;
    };
    if (rank.rank == 0) save_model(*expected(), folder / "first");
    const std::vector<double> values = values_of(distinct(expected()->parameters()));
    for (const bool is_loaded : {false, true}) {
      std::shared_ptr<OddNet> net;
      if (rank.rank > 0 || is_loaded) net = empty_odd_net(static_cast<uint64_t>(5 + rank.rank));
      if (rank.rank == 0 && is_loaded) load_checkpoint_in_model(*net, folder / "first");
      if (rank.rank == 0 && !is_loaded) net = expected();
      ZeroLoop own(zero_for(3, std::nullopt), {}, net);
      EXPECT_EQ(own.values(), values);
      EXPECT_EQ(own.net->scale.item<float>(), 1.5);
      own.train(0, 1);
    }
  });
}

// Built on the meta device by its own means.
struct OnDevice : torch::nn::Module {
  explicit OnDevice(c10::Device device)
      : weight(register_parameter("weight", torch::full({3, 200}, 0.5, device))),
        bias(register_parameter("bias", torch::full({200}, 0.25, device))) {}
  at::Tensor forward(const at::Tensor& input) { return input.matmul(weight) + bias; }
  at::Tensor weight, bias;
};

TEST_F(ZeroEmpty, ModelsOnTheMetaDeviceGetTheValuesOfRankZeroIfItHasThem) {
  run(2, [](const Rank& rank) {
    Accelerator accelerator(zero(3));
    const c10::Device meta(c10::kMeta);
    auto net = std::make_shared<OnDevice>(rank.rank == 0 ? test_device() : meta);
    auto model = accelerator.prepare(net);
    EXPECT_EQ(flat({model(ones({1, 3}))}), std::vector<double>(200, 1.75));
    auto unknown = std::make_shared<OnDevice>(rank.rank == 0 ? meta : test_device());
    EXPECT_THAT(usage_error([&] { (void)accelerator.prepare(unknown); }),
                AllOf(HasSubstr("'weight' is on the meta device on rank 0"),
                      HasSubstr("init_empty_weights()")));
  });
}

TEST_F(ZeroEmpty, ModelsGoOnFromAnyState) {
  run(2, [&](const Rank&) {
    ZeroLoop saved(replicated());
    saved.train(0, 3).accelerator.save_state(folder / "state");
    const std::vector<double> expected = saved.train(3, 5).values();
    ZeroLoop own(zero_for(3, std::nullopt), {}, empty_odd_net(1));
    own.accelerator.load_state(folder / "state");
    EXPECT_TRUE(near(own.train(3, 5).values(), expected));
    own.accelerator.save_state(folder / "again");
    ZeroLoop again(replicated());
    again.accelerator.load_state(folder / "again");
    EXPECT_EQ(again.values(), own.values());
  });
}

TEST_F(ZeroEmpty, ModelsReachAStrategyThatFillsThemItself) {
  struct Filling : Strategy {
    std::string_view name() const override { return "filling"; }
    bool fills_empty_weights() const override { return true; }
    void place(torch::nn::Module&, c10::Device) override {}
    std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) override {
      EXPECT_TRUE(has_empty_weights(*module));
      materialize(*module);
      return std::make_shared<ModelStrategy>();
    }
  };
  struct Factory : StrategyFactory {
    std::unique_ptr<Strategy> make(const StrategyContext&) const override {
      return std::make_unique<Filling>();
    }
  };
  run(1, [](const Rank&) {
    AcceleratorOptions options = on_cpu();
    options.strategy = std::make_shared<Factory>();
    Accelerator accelerator(options);
    const auto net = empty_odd_net(11);
    const auto model = accelerator.prepare(net);
    EXPECT_EQ(flat(net->parameters()), flat(odd_net()->parameters()));
  });
}

constexpr int64_t kEmptyWidth = 128;
constexpr int64_t kEmptyLayers = 24;
constexpr int64_t kEmptyLayerBytes = 4 * kEmptyWidth * (kEmptyWidth + 1);

// Initialised a second time when it is complete, as models of transformers are.
struct TallTower : torch::nn::Module {
  TallTower() {
    for (int64_t i = 0; i < kEmptyLayers; ++i) {
      layers->push_back(torch::nn::Linear(kEmptyWidth, kEmptyWidth));
    }
    register_module("layers", layers);
    const torch::NoGradGuard no_grad;
    for (const auto& item : named_parameters()) {
      if (item.key().ends_with("weight")) {
        item.value().normal_(0, 0.02);
      } else {
        item.value().zero_();
      }
    }
  }
  at::Tensor forward(at::Tensor hidden) {
    for (const auto& layer : *layers) {
      hidden = torch::tanh(layer->as<torch::nn::LinearImpl>()->forward(hidden));
    }
    return hidden;
  }
  torch::nn::ModuleList layers;
};

TEST_F(ZeroEmpty, NoRankEverHoldsTheModel) {
  if (tests_on_gpu()) GTEST_SKIP() << "counts the memory of CPU tensors";
  enum class Source { kInitialised, kFiles, kRankZero };
  run(4, [&](const Rank& rank) {
    torch::manual_seed(8);
    auto expected = std::make_shared<TallTower>();
    if (rank.rank == 0) save_model(*expected, folder / "tower", {.max_shard_size = "300KB"});
    const std::vector<double> values = flat(expected->parameters());
    expected.reset();
    const MemoryCount memory;
    for (const Source source : {Source::kInitialised, Source::kFiles, Source::kRankZero}) {
      Accelerator accelerator(zero(3));
      accelerator.wait_for_everyone();
      const int64_t before = memory.now();
      memory.begin_most();
      torch::manual_seed(8);
      std::shared_ptr<TallTower> net;
      {
        const auto empty = init_empty_weights();
        net = std::make_shared<TallTower>();
      }
      if (source == Source::kFiles || (source == Source::kRankZero && rank.rank == 0)) {
        load_checkpoint_in_model(*net, folder / "tower", {.strict = true});
      }
      // States of random generators, and the like.
      constexpr int64_t kRest = 4 * kEmptyLayerBytes;
      EXPECT_LT(memory.most() - before, kRest);
      auto model = accelerator.prepare(net);
      const int64_t share = kEmptyLayers * kEmptyLayerBytes / rank.world_size;
      EXPECT_LT(memory.most() - before, share + kRest) << static_cast<int>(source);
      EXPECT_GE(memory.now() - before, share);
      model(torch::ones({1, kEmptyWidth})).sum();
      EXPECT_LT(memory.most() - before, share + kRest + 4 * kEmptyLayerBytes);
      EXPECT_EQ(values_of(net->parameters()), values) << static_cast<int>(source);
    }
  });
}

TEST_F(ZeroEmpty, PretrainedModelsAreReadInShards) {
  if (tests_on_gpu()) GTEST_SKIP() << "models of the CPU";
  run(2, [&](const Rank& rank) {
    for (const std::string type : {"gpt2", "llama", "t5", "bert"}) {
      const auto task = type == "t5"     ? ModelTask::kSeq2SeqLm
                        : type == "bert" ? ModelTask::kSequenceClassification
                                         : ModelTask::kCausalLm;
      torch::manual_seed(6);
      const auto saved = transformers::make_model(task, small_model(type));
      save_pretrained(*saved, folder / type, {.is_main_process = rank.rank == 0});
      torch::manual_seed(6);
      std::shared_ptr<PretrainedModel> made;
      {
        const auto empty = init_empty_weights();
        made = transformers::make_model(task, small_model(type));
      }
      Accelerator accelerator(zero(3));
      const auto initialised = accelerator.prepare(made);
      EXPECT_EQ(values_of(distinct(made->parameters())), flat(distinct(saved->parameters())))
          << type;
      for (const std::optional<at::ScalarType> dtype :
           {std::optional<at::ScalarType>(), std::optional(at::kBFloat16)}) {
        const auto whole = transformers::load_pretrained(task, folder / type, {.dtype = dtype});
        std::shared_ptr<PretrainedModel> own;
        {
          const auto empty = init_empty_weights();
          own = transformers::load_pretrained(task, folder / type, {.dtype = dtype});
        }
        EXPECT_TRUE(has_empty_weights(*own)) << type;
        const auto model = accelerator.prepare(own);
        const auto expected = whole->named_parameters();
        for (const auto& item : own->named_parameters()) {
          EXPECT_TRUE(item.value().detach().clone().equal(expected[item.key()]))
              << type << ' ' << item.key();
        }
        for (const auto& item : own->named_buffers()) {
          EXPECT_TRUE(item.value().equal(whole->named_buffers()[item.key()]))
              << type << ' ' << item.key();
        }
      }
    }
  });
}

}  // namespace
}  // namespace accelerate::test
