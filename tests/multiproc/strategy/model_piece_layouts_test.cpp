// What strategies say of the parts of a model that ranks keep, and what is wrong with it.
#include <fstream>

#include "multiproc/strategy/piece_training.h"

namespace accelerate::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct ModelPieceLayouts : Ranks {
  StateFolder folder;
};

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

TEST_F(ModelPieceLayouts, ThatLeaveAHoleAreNotSaved) {
  run(2, [&](const Rank&) {
    for (const std::string& said : refusals(row_of_weight(0), 2, folder.path())) {
      EXPECT_THAT(said, HasSubstr("all ranks together hold 2 of 4 elements of \"weight\""));
    }
  });
}

TEST_F(ModelPieceLayouts, ThatOverlapAreNotSaved) {
  run(2, [&](const Rank& rank) {
    const int64_t rows = 1 + rank.rank;
    for (const std::string& said : refusals(row_of_weight(0, rows), 2 * rows, folder.path())) {
      EXPECT_THAT(said, HasSubstr("pieces of \"weight\" overlap"));
    }
  });
}

TEST_F(ModelPieceLayouts, ThatDoNotFitWhatOneRankHoldsAreRefusedOnAll) {
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

TEST_F(ModelPieceLayouts, OfWholesThatDifferAreNotSaved) {
  run(2, [&](const Rank& rank) {
    ModelLayout told = row_of_weight(rank.rank);
    if (rank.rank == 1) told["weight"].shape = {2, 3};
    for (const std::string& said : refusals(told, 2, folder.path())) {
      EXPECT_THAT(said, HasSubstr("rank 1 has \"weight\" in pieces of another tensor than rank 0"));
    }
  });
}

// Replicated pieces are kept and read once.
TEST_F(ModelPieceLayouts, ThatSeveralRanksHoldAreSavedAndMerged) {
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

TEST_F(ModelPieceLayouts, OfARankThatCannotWriteDoNotKeepTheOthersWaiting) {
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

TEST_F(ModelPieceLayouts, AreSomethingThatNeedsWholeTensorsRefuses) {
  run(1, [](const Rank&) {
    TellingModel whole(torch::ones({2}), {}, torch::ones({2}));
    EXPECT_NO_THROW(whole.require_whole("here"));
    TellingModel pieces(torch::ones({2}), row_of_weight(0), torch::ones({2}));
    EXPECT_THAT(usage_error([&] { pieces.require_whole("here"); }),
                AllOf(HasSubstr("this rank holds a piece of 'weight'"), HasSubstr("here")));
  });
}

}  // namespace
}  // namespace accelerate::test
