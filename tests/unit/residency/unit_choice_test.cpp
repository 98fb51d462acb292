#include "residency/touch/unit_choice.h"

#include <accelerate/errors.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace accelerate::test {
namespace {

using residency::UnitParameters;
using testing::ElementsAre;
using testing::HasSubstr;

struct LayerImpl : torch::nn::Module {
  LayerImpl() {
    register_module("norm", norm);
    register_module("inner", inner);
  }
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({8})};
  torch::nn::Sequential inner{torch::nn::Linear(8, 16), torch::nn::GELU(),
                              torch::nn::Linear(16, 8)};
};
TORCH_MODULE(Layer);

struct LanguageModelImpl : torch::nn::Module {
  explicit LanguageModelImpl(int layers = 6) {
    register_module("tokens", tokens);
    register_module("positions", positions);
    register_module("layers", all);
    register_module("norm", norm);
    register_module("head", head);
    for (int i = 0; i < layers; ++i) all->push_back(Layer());
  }
  torch::nn::Embedding tokens{60, 8};
  at::Tensor forward(const at::Tensor& x) { return x; }
  torch::nn::Embedding positions{4, 8};
  torch::nn::ModuleList all{};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({8})};
  torch::nn::Linear head{torch::nn::LinearOptions(8, 60).bias(false)};
};
TORCH_MODULE(LanguageModel);

std::vector<std::string> names_of(const std::vector<UnitParameters>& units) {
  std::vector<std::string> names;
  for (const UnitParameters& unit : units) names.push_back(unit.name);
  return names;
}

std::vector<std::string> parameters_of(const std::vector<UnitParameters>& units,
                                       const std::string& name) {
  for (const UnitParameters& unit : units) {
    if (unit.name == name) return unit.names;
  }
  return {};
}

TEST(UnitChoice, ByStructureTakesMembersOfListsLargeModulesAndTheRest) {
  LanguageModel model;
  const auto units = residency::units_by_structure(*model);
  EXPECT_THAT(names_of(units), ElementsAre("tokens", "rest", "layers.0", "layers.1", "layers.2",
                                           "layers.3", "layers.4", "layers.5", "head"));
  EXPECT_THAT(parameters_of(units, "rest"),
              ElementsAre("positions.weight", "norm.weight", "norm.bias"));
}

TEST(UnitChoice, ByStructureLooksIntoMembersThatAreMostOfTheModel) {
  torch::nn::Sequential model(LanguageModel(2), torch::nn::Linear(8, 2));
  EXPECT_THAT(names_of(residency::units_by_structure(*model)),
              ElementsAre("0.tokens", "rest", "0.layers.0", "0.layers.1", "0.head", "1"));
}

// As models of the hub register their layers, and code that was translated from Python.
struct PlainModelImpl : torch::nn::Module {
  PlainModelImpl() {
    register_module("tokens", torch::nn::Embedding(60, 8));
    for (int i = 0; i < 3; ++i) register_module("h" + std::to_string(i), Layer());
    register_module("left", torch::nn::Linear(8, 4));
    register_module("right", torch::nn::Linear(8, 4));
  }
};
TORCH_MODULE(PlainModel);

TEST(UnitChoice, ByStructureTakesSeveralChildrenOfOneClassAsBlocks) {
  const PlainModel model;
  const auto units = residency::units_by_structure(*model);
  EXPECT_THAT(names_of(units), ElementsAre("tokens", "h0", "h1", "h2", "rest"));
  EXPECT_THAT(parameters_of(units, "rest"),
              ElementsAre("left.weight", "left.bias", "right.weight", "right.bias"));
}

TEST(UnitChoice, ByStructureLooksIntoChildrenOfOneClassThatAreMostOfTheModel) {
  torch::nn::Module pair;
  pair.register_module("encoder", PlainModel());
  pair.register_module("decoder", PlainModel());
  EXPECT_THAT(names_of(residency::units_by_structure(pair)),
              ElementsAre("encoder.tokens", "encoder.h0", "encoder.h1", "encoder.h2", "rest",
                          "decoder.tokens", "decoder.h0", "decoder.h1", "decoder.h2"));
}

TEST(UnitChoice, SmallParametersAndSuchOfOtherTypesStayWhole) {
  LanguageModel model;
  const auto units = residency::units_by_structure(*model, {.persistence_threshold = 32});
  EXPECT_THAT(parameters_of(units, "rest"), ElementsAre("positions.weight"));
  EXPECT_THAT(parameters_of(units, "layers.0"),
              ElementsAre("layers.0.inner.0.weight", "layers.0.inner.2.weight"));
}

TEST(UnitChoice, TiedParametersBelongToTheFirstOfTheirNames) {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() {
      register_module("tokens", tokens);
      tied = register_parameter("tied", tokens->weight);
    }
    torch::nn::Embedding tokens{60, 8};
    at::Tensor tied;
  };
  const TiedImpl model;
  const auto units = residency::units_by_structure(model);
  ASSERT_EQ(units.size(), 1U);
  EXPECT_EQ(units[0].parameters.size(), 1U);
}

TEST(UnitChoice, DifferentTypesAreDifferentUnits) {
  LanguageModel model;
  model->norm->to(at::kDouble);
  EXPECT_EQ(parameters_of(residency::units_by_structure(*model), "rest").size(), 1U);
  EXPECT_EQ(residency::units_by_structure(*model).size(), 10U);
}

TEST(UnitChoice, BySizeCountsWhatNoInnerUnitHas) {
  LanguageModel model;
  EXPECT_THAT(names_of(residency::units_by_size(*model, 280)),
              ElementsAre("tokens", "rest", "layers.0.inner", "layers.1.inner", "layers.2.inner",
                          "layers.3.inner", "layers.4.inner", "layers.5.inner", "head"));
  EXPECT_THAT(names_of(residency::units_by_size(*model, 1 << 20)), ElementsAre("rest"));
}

TEST(UnitChoice, ByNameTakesClassesAndPatterns) {
  LanguageModel model;
  const std::vector<std::string> layers{"rest",     "layers.0", "layers.1", "layers.2",
                                        "layers.3", "layers.4", "layers.5"};
  EXPECT_EQ(names_of(residency::units_by_name(*model, {"Layer"})), layers);
  EXPECT_EQ(names_of(residency::units_by_name(*model, {"LayerImpl"})), layers);
  EXPECT_EQ(names_of(residency::units_by_name(*model, {"layers.*"})), layers);
  EXPECT_THAT(names_of(residency::units_by_name(*model, {"**.inner", "layers.3"})),
              ElementsAre("rest", "layers.0.inner", "layers.1.inner", "layers.2.inner", "layers.3",
                          "layers.3.inner", "layers.4.inner", "layers.5.inner"));
  try {
    residency::units_by_name(*model, {"Layer", "Decoder"});
    ADD_FAILURE() << "expected a UsageError";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no module is called 'Decoder'"));
    EXPECT_THAT(error.what(), HasSubstr("the classes in this model are Embedding, GELU, Layer, "));
  }
}

TEST(UnitChoice, ModulesOfTheUserAreTakenAsTheyAre) {
  LanguageModel model;
  EXPECT_THAT(names_of(residency::units_of_modules(*model, {model->all.get(), model->head.get()})),
              ElementsAre("rest", "layers", "head"));
  const LanguageModel other;
  EXPECT_THROW(residency::units_of_modules(*model, {other->head.get()}), UsageError);
}

}  // namespace
}  // namespace accelerate::test
