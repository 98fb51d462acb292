// What `accelerate estimate-memory` says of a model, without libtorch, against the model itself.
#include <accelerate/errors.h>
#include <accelerate/transformers/registry.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "estimate/architectures.h"
#include "transformers/small_models.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
using transformers::Architecture;

using Shapes = std::map<std::string, std::vector<int64_t>>;

// The settings of a small model of that type, which has all that such a file can say of sizes.
json small_settings(const std::string& model_type) {
  json settings = json::parse(small_model(model_type).to_json());
  settings["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  if (model_type == "llama") settings["head_dim"] = 4;
  if (model_type == "gpt2") settings["n_inner"] = 24;
  if (model_type == "t5") settings["num_decoder_layers"] = 1;
  return settings;
}

Shapes made(const Architecture& architecture, const json& settings) {
  Shapes shapes;
  const auto model =
      transformers::make_model(architecture.task, ModelConfig::from_json(settings.dump()));
  for (const auto& item : model->named_parameters()) {
    shapes[item.key()] = item.value().sizes().vec();
  }
  return shapes;
}

Shapes estimated(const Architecture& architecture, json settings) {
  settings["architectures"] = {architecture.name};
  Shapes shapes;
  for (const auto& parameter :
       estimate::parse_architecture(settings.dump(), "config.json").parameters) {
    shapes[parameter.name] = {parameter.shape.begin(), parameter.shape.end()};
  }
  return shapes;
}

// What the error says, without what kind it is: the program's is a ConfigError.
template <class Call>
std::string refusal_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

// Both have the same parameters, or refuse with the same words.
void expect_same(const Architecture& architecture, const json& settings) {
  SCOPED_TRACE(architecture.name + " of " + settings.dump());
  const std::string refusal = refusal_of([&] { made(architecture, settings); });
  EXPECT_EQ(refusal_of([&] { estimated(architecture, settings); }), refusal);
  if (refusal.empty()) {
    EXPECT_EQ(estimated(architecture, settings), made(architecture, settings));
  }
}

template <class Check>
void for_each_architecture(const Check& check) {
  const std::vector<Architecture> all = transformers::registered_architectures();
  int checked = 0;
  for (const Architecture& each : all) {
    // Other tests of this program may have added some.
    if (model_config::known_type(each.model_type).empty()) continue;
    check(each, small_settings(each.model_type));
    ++checked;
  }
  EXPECT_EQ(checked, 24);
}

TEST(ParameterShapes, AnEstimateHasTheParametersOfTheModel) {
  for_each_architecture([](const Architecture& each, const json& settings) {
    EXPECT_FALSE(made(each, settings).empty());
    expect_same(each, settings);
  });
}

TEST(ParameterShapes, BothGiveASizeThatIsNotNamedTheSameValue) {
  for_each_architecture([](const Architecture& each, const json& settings) {
    for (const auto& [key, value] : settings.items()) {
      if (!value.is_number_integer()) continue;
      json rest = settings;
      rest.erase(key);
      expect_same(each, rest);
    }
  });
}

TEST(ParameterShapes, BothTakeSettingsThatAddParameters) {
  const std::vector<json> changes{{{"tie_word_embeddings", false}},
                                  {{"tie_word_embeddings", true}},
                                  {{"attention_bias", true}, {"mlp_bias", true}},
                                  {{"feed_forward_proj", "gated-gelu"}},
                                  {{"num_labels", 7}}};
  for_each_architecture([&](const Architecture& each, const json& settings) {
    for (const json& change : changes) {
      json changed = settings;
      changed.update(change);
      expect_same(each, changed);
    }
  });
}

TEST(ParameterShapes, BothRefuseTheSame) {
  const std::vector<json> changes{{{"vocab_size", 0}},
                                  {{"vocab_size", "many"}},
                                  {{"num_attention_heads", 3}},
                                  {{"hidden_size", -1}},
                                  {{"num_hidden_layers", 1.5}},
                                  {{"num_key_value_heads", 3}},
                                  {{"num_labels", 0}, {"id2label", nullptr}},
                                  {{"attention_bias", 1}}};
  for_each_architecture([&](const Architecture& each, const json& settings) {
    for (const json& change : changes) {
      json changed = settings;
      changed.update(change);
      expect_same(each, changed);
    }
  });
}

}  // namespace
}  // namespace accelerate::test
