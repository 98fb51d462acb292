// Models of which each rank keeps a part: trained, saved, resumed elsewhere, and put together.
#include <torch/torch.h>

#include <fstream>
#include <limits>

#include "install/strategies/sharded_optimizer_strategy.h"
#include "install/strategies/sharded_parameters_strategy.h"
#include "multiproc/accumulation.h"
#include "multiproc/state_folder.h"
#include "multiproc/state_nodes.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct ModelPieces : Ranks {
  StateFolder folder;
};

AcceleratorOptions sharded(ProjectOptions project = {}) {
  AcceleratorOptions options = on_cpu();
  options.project = std::move(project);
  options.strategy = std::make_shared<strategies::ShardedParametersFactory>();
  return options;
}

// A net of matrices that no number of ranks divides evenly, a parameter of one element, a tied one,
// and a buffer.
struct PieceNet : Net {
  PieceNet()
      : first(register_module("first", torch::nn::Linear(6, 7))),
        second(register_module("second", torch::nn::Linear(7, 3))),
        factor(register_parameter("factor", torch::full({}, 0.5))),
        same_bias(register_parameter("same_bias", second->bias)),
        seen(register_buffer("seen", torch::tensor({3.0, 4.0}))) {
    to(test_device());
  }
  at::Tensor forward(at::Tensor input) override {
    return second(torch::tanh(first(input))) * factor + same_bias;
  }
  torch::nn::Linear first, second;
  at::Tensor factor, same_bias, seen;
};

struct PieceLoop {
  explicit PieceLoop(const AcceleratorOptions& options) : accelerator(options) {
    torch::manual_seed(5);
    net = std::make_shared<PieceNet>();
    const std::vector<at::Tensor> distinct{net->first->weight, net->first->bias,
                                           net->second->weight, net->second->bias, net->factor};
    auto prepared = accelerator.prepare(net, torch::optim::AdamW(distinct, 0.05));
    model.emplace(std::get<0>(prepared));
    optimizer.emplace(std::get<1>(prepared));
  }

  void micro_batch(int step, double factor = 1) {
    const int64_t rows = 12 / accelerator.num_processes();
    const StepData data = data_of_step(step, 12);
    const int rank = accelerator.process_index();
    const auto window = accelerator.accumulate(*model);
    accelerator.backward(factor * loss_of((*model)(rows_of(data.input, rank, rows)),
                                          rows_of(data.target, rank, rows)));
    if (accelerator.sync_gradients() && max_norm > 0) {
      norms.push_back(
          accelerator.clip_grad_norm_(optimizer->parameters(), max_norm).item<double>());
    }
    optimizer->step();
    optimizer->zero_grad();
  }
  PieceLoop& train(int first, int last) {
    for (int step = first; step < last; ++step) micro_batch(step);
    return *this;
  }
  // On rank 0; nothing elsewhere.
  std::vector<double> values() {
    std::vector<at::Tensor> all;
    for (const auto& item : accelerator.get_state_dict(*model)) all.push_back(item.value());
    return accelerator.is_main_process() ? flat(all) : std::vector<double>();
  }
  std::string refusal(const std::filesystem::path& directory, const LoadOptions& options = {}) {
    try {
      accelerator.load_state(directory, options);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return {};
  }

  Accelerator accelerator;
  std::shared_ptr<PieceNet> net;
  std::optional<PreparedModel<PieceNet>> model;
  std::optional<PreparedOptimizer> optimizer;
  double max_norm = 0.1;
  std::vector<double> norms;
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
          EXPECT_TRUE(item.value().equal(get_state_dict(*loaded)[item.key()].cpu())) << item.key();
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
    for (const auto& item : state) EXPECT_TRUE(item.value().equal(merged[item.key()]));
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

// --- layouts that are wrong ---

// Says what it is told of one parameter.
class TellingModel final : public ModelStrategy {
 public:
  TellingModel(at::Tensor parameter, ModelLayout told, at::Tensor held)
      : parameter_(std::move(parameter)), told_(std::move(told)), held_(std::move(held)) {}
  at::Tensor master_of(const at::Tensor& tensor) const override {
    return tensor.is_same(parameter_) ? held_ : tensor;
  }
  ModelLayout layout() const override { return told_; }

 private:
  at::Tensor parameter_;
  ModelLayout told_;
  at::Tensor held_;
};

struct TellingFactory final : StrategyFactory, std::enable_shared_from_this<TellingFactory> {
  TellingFactory(ModelLayout own, int64_t elements) : told(std::move(own)), held(elements) {}
  struct Telling final : Strategy {
    explicit Telling(std::shared_ptr<const TellingFactory> from) : from(std::move(from)) {}
    std::string_view name() const override { return "telling"; }
    std::shared_ptr<ModelStrategy> wrap(std::shared_ptr<torch::nn::Module> module) override {
      return std::make_shared<TellingModel>(module->parameters()[0], from->told,
                                            torch::ones({from->held}));
    }
    std::shared_ptr<const TellingFactory> from;
  };
  std::unique_ptr<Strategy> make(const StrategyContext&) const override {
    return std::make_unique<Telling>(shared_from_this());
  }
  ModelLayout told;
  int64_t held;
};

struct TwoByTwo : torch::nn::Module {
  TwoByTwo() : weight(register_parameter("weight", torch::ones({2, 2}))) {}
  at::Tensor forward(const at::Tensor& input) { return input + weight.sum(); }
  at::Tensor weight;
};

// What save_state, save_model and get_state_dict say on a rank that tells this.
std::vector<std::string> refusals(const ModelLayout& told, int64_t elements,
                                  const std::filesystem::path& folder) {
  AcceleratorOptions options = on_cpu();
  options.strategy = std::make_shared<TellingFactory>(told, elements);
  Accelerator accelerator(options);
  auto model = accelerator.prepare(std::make_shared<TwoByTwo>());
  std::vector<std::string> said{
      usage_error([&] { accelerator.save_state(folder / "state"); }),
      usage_error([&] { accelerator.save_model(model, folder / "model"); }),
      usage_error([&] { accelerator.get_state_dict(model); })};
  EXPECT_FALSE(std::filesystem::exists(folder / "state"));
  EXPECT_FALSE(std::filesystem::exists(folder / "model"));
  return said;
}

ModelLayout row_of_weight(int64_t row, int64_t rows = 1) {
  return {{"weight", {.shape = {2, 2}, .boxes = {{.start = {row, 0}, .shape = {rows, 2}}}}}};
}

TEST_F(ModelPieces, ThatLeaveAHoleAreNotSaved) {
  run(2, [&](const Rank&) {
    for (const std::string& said : refusals(row_of_weight(0), 2, folder.path())) {
      EXPECT_THAT(said, HasSubstr("all ranks together hold 2 of 4 elements of \"weight\""));
    }
  });
}

TEST_F(ModelPieces, ThatOverlapAreNotSaved) {
  run(2, [&](const Rank& rank) {
    const int64_t rows = 1 + rank.rank;
    for (const std::string& said : refusals(row_of_weight(0, rows), 2 * rows, folder.path())) {
      EXPECT_THAT(said, HasSubstr("pieces of \"weight\" overlap"));
    }
  });
}

TEST_F(ModelPieces, ThatDoNotFitWhatOneRankHoldsAreRefusedOnAll) {
  run(2, [&](const Rank& rank) {
    const auto said = refusals(row_of_weight(rank.rank), rank.rank == 1 ? 3 : 2, folder.path());
    for (const std::string& text : said) {
      EXPECT_THAT(text, AllOf(HasSubstr("[rank 1 of 2]"),
                              HasSubstr("the layout of \"weight\" does not fit the 3 elements")));
    }
  });
  run(1, [&](const Rank&) {
    for (const std::string& said : refusals({{"bias", {.shape = {2}}}}, 4, folder.path())) {
      EXPECT_THAT(said, HasSubstr("names \"bias\", which the model does not have"));
    }
  });
}

TEST_F(ModelPieces, OfWholesThatDifferAreNotSaved) {
  run(2, [&](const Rank& rank) {
    ModelLayout told = row_of_weight(rank.rank);
    if (rank.rank == 1) told["weight"].shape = {2, 3};
    for (const std::string& said : refusals(told, 2, folder.path())) {
      EXPECT_THAT(said, HasSubstr("rank 1 has \"weight\" in pieces of another tensor than rank 0"));
    }
  });
}

// Replicated pieces are kept and read once.
TEST_F(ModelPieces, ThatSeveralRanksHoldAreSavedAndMerged) {
  run(2, [&](const Rank& rank) {
    AcceleratorOptions options = on_cpu();
    options.strategy = std::make_shared<TellingFactory>(row_of_weight(0, 2), 4);
    Accelerator accelerator(options);
    auto model = accelerator.prepare(std::make_shared<TwoByTwo>());
    accelerator.save_state(folder / "twice");
    accelerator.save_model(model, folder / "model");
    Accelerator usual(on_cpu());
    auto net = std::make_shared<TwoByTwo>();
    {
      torch::NoGradGuard no_grad;
      net->weight.zero_();
    }
    auto loaded = usual.prepare(net);
    usual.load_state(folder / "twice");
    EXPECT_EQ(flat({net->weight}), (std::vector<double>{1, 1, 1, 1}));
    if (rank.rank == 0) {
      merge_weights(folder / "twice", folder / "merged");
      EXPECT_TRUE(load_state_dict(folder / "merged")["weight"].equal(torch::ones({2, 2})));
    }
  });
}

TEST_F(ModelPieces, OfARankThatCannotWriteDoNotKeepTheOthersWaiting) {
  run(2, [&](const Rank& rank) {
    PieceLoop own(sharded());
    if (rank.rank == 0) std::ofstream(folder / "file") << "in the way";
    own.accelerator.wait_for_everyone();
    EXPECT_THAT(usage_error([&] { own.accelerator.save_model(*own.model, folder / "file"); }),
                AllOf(HasSubstr("[rank 0 of 2]"), HasSubstr("but this is a file")));
    own.accelerator.save_model(*own.model, folder / "elsewhere");
    own.train(0, 1);
  });
}

// --- scaled losses ---

AcceleratorOptions scaled(AcceleratorOptions options) {
  options.mixed_precision = MixedPrecision::kFp16;
  options.grad_scaler.init_scale = 1024;
  return options;
}

AcceleratorOptions with_sharded_optimizer() {
  AcceleratorOptions options = on_cpu();
  options.strategy = std::make_shared<strategies::ShardedOptimizerFactory>();
  return options;
}

TEST_F(ModelPieces, AreTrainedWithScaledLosses) {
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [](const Rank& rank) {
      for (const double max_norm : {0.0, 0.1}) {
        PieceLoop usual(scaled(on_cpu()));
        usual.max_norm = max_norm;
        const std::vector<double> expected = usual.train(0, 5).values();
        for (const AcceleratorOptions& options : {sharded(), with_sharded_optimizer()}) {
          PieceLoop own(scaled(options));
          own.max_norm = max_norm;
          const std::vector<double> values = own.train(0, 5).values();
          if (rank.rank == 0) EXPECT_TRUE(near(values, expected, 2e-3));
          EXPECT_TRUE(near(own.norms, usual.norms, 2e-3));
        }
      }
    });
  }
}

// The gradient of one element overflows: on one rank alone it is in the part that it sees. With
// three ranks one sees nothing of a parameter of two elements.
struct PairNet : torch::nn::Module {
  PairNet() : pair(register_parameter("pair", torch::ones({2}, test_device()))) {}
  at::Tensor forward(const at::Tensor& factors) { return (pair * factors).sum(); }
  at::Tensor pair;
};

TEST_F(ModelPieces, ThatOverflowOnOneRankAreSteppedOnNone) {
  for (const int ranks : {1, 2, 3}) {
    run(ranks, [](const Rank&) {
      const double infinity = std::numeric_limits<double>::infinity();
      for (const AcceleratorOptions& options : {sharded(), with_sharded_optimizer()}) {
        for (const bool unscales : {false, true}) {
          Accelerator accelerator(scaled(options));
          auto net = std::make_shared<PairNet>();
          auto [model, optimizer] =
              accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1));
          const auto step = [&, &model = model, &optimizer = optimizer](double first) {
            accelerator.backward(model(torch::tensor({first, 1.0}).to(test_device(), at::kFloat)));
            if (unscales) accelerator.unscale_gradients();
            optimizer.step();
            optimizer.zero_grad();
            return accelerator.optimizer_step_was_skipped();
          };
          const std::vector<double> before = flat({model.strategy()->master_of(net->pair)});
          EXPECT_TRUE(step(infinity));
          EXPECT_EQ(flat({model.strategy()->master_of(net->pair)}), before);
          EXPECT_EQ(accelerator.scaler()->scale_factor(), 512);
          EXPECT_FALSE(step(1));
          EXPECT_EQ(accelerator.scaler()->scale_factor(), 512);
          EXPECT_EQ(optimizer.step_count(), 1);
          const at::Tensor own = model.strategy()->master_of(net->pair);
          if (own.numel() > 0) EXPECT_NEAR(flat({own})[0], 0.9, 1e-2);
        }
      }
    });
  }
}

TEST_F(ModelPieces, OfAnIdleOptimizerAreLeftAlone) {
  run(2, [](const Rank&) {
    Accelerator accelerator(scaled(sharded()));
    auto net = std::make_shared<PairNet>();
    auto other = std::make_shared<PairNet>();
    auto [model, optimizer, idle_model, idle] =
        accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1), other,
                            torch::optim::AdamW(other->parameters(), 0.1));
    for (int i = 0; i < 2; ++i) {
      accelerator.backward(model(ones({2})), {.only = model});
      accelerator.unscale_gradients();
      optimizer.step();
      optimizer.zero_grad();
    }
    EXPECT_EQ(optimizer.step_count(), 2);
    EXPECT_EQ(idle.step_count(), 0);
    EXPECT_THAT(usage_error([&, &model = model, &optimizer = optimizer] {
                  accelerator.backward(model(ones({2})), {.only = model});
                  optimizer.step();
                  optimizer.step();
                }),
                HasSubstr("already stepped with these gradients"));
  });
}

// Somebody drops unscaled gradients behind the library's back, on all ranks.
TEST_F(ModelPieces, WhoseUnscaledGradientsAreDroppedGoOn) {
  run(3, [](const Rank&) {
    Accelerator accelerator(scaled(sharded()));
    auto net = std::make_shared<PairNet>();
    auto [model, optimizer] = accelerator.prepare(net, torch::optim::AdamW(net->parameters(), 0.1));
    accelerator.backward(model(ones({2})));
    accelerator.unscale_gradients();
    net->zero_grad();
    accelerator.backward(model(ones({2})));
    optimizer.step();
    EXPECT_FALSE(accelerator.optimizer_step_was_skipped());
    EXPECT_EQ(optimizer.step_count(), 1);
  });
}

// --- exact values ---

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
        EXPECT_TRUE(saved[item.key()].equal(item.value())) << item.key();
        EXPECT_TRUE(in_state[item.key()].equal(item.value())) << item.key();
      }
    });
  }
}

}  // namespace
}  // namespace accelerate::test
