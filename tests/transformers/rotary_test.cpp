// Angles and distances: what models know of where a token is.
#include "transformers/models/rotary.h"

#include <ATen/ATen.h>
#include <accelerate/errors.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>

#include "device/replay_actions.h"
#include "transformers/models/t5_stack.h"

namespace accelerate::transformers {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;

ModelConfig with_rope(const std::string& settings) {
  return ModelConfig::from_json(R"({"max_position_embeddings": 64, )" + settings + "}");
}

std::vector<float> frequencies(const std::string& settings, int64_t length = 1) {
  const auto options = RotaryOptions::from_config(with_rope(settings), 8);
  const at::Tensor found = rotary_frequencies(options, length);
  return {found.data_ptr<float>(), found.data_ptr<float>() + found.numel()};
}

MATCHER_P(Close, wanted, "") { return std::abs(arg - wanted) <= 1e-6f * wanted; }

// Both spellings: that of transformers 5, and the older one.
void expect_frequencies(const std::string& type, const std::string& others, const char* theta,
                        const std::vector<float>& wanted, int64_t length = 1) {
  SCOPED_TRACE(type);
  const auto close =
      testing::ElementsAre(Close(wanted[0]), Close(wanted[1]), Close(wanted[2]), Close(wanted[3]));
  EXPECT_THAT(frequencies(R"("rope_parameters": {"rope_type": ")" + type + "\"" + others +
                              R"(, "rope_theta": )" + theta + "}",
                          length),
              close);
  for (const std::string key : {"rope_type", "type"}) {
    EXPECT_THAT(frequencies(R"("rope_scaling": {")" + key + R"(": ")" + type + "\"" + others +
                                R"(}, "rope_theta": )" + theta,
                            length),
                close);
  }
}

TEST(Rotary, FrequenciesAreThoseOfTransformersForEachTypeInBothSpellings) {
  expect_frequencies("default", "", "10000.0", {1, 0.1F, 0.01F, 0.001F});
  expect_frequencies("linear", R"(, "factor": 4.0)", "10000.0",
                     {0.25F, 0.0250000004F, 0.00249999994F, 0.000250000012F});
  expect_frequencies("dynamic", R"(, "factor": 2.0)", "10000.0",
                     {1, 0.100000001F, 0.00999999978F, 0.00100000005F}, 64);
  expect_frequencies("dynamic", R"(, "factor": 2.0)", "10000.0",
                     {1, 0.0777822211F, 0.00605007401F, 0.000470588246F}, 100);
  expect_frequencies("llama3",
                     R"(, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 32)",
                     "500.0", {1, 0.0311854575F, 0.00559017016F, 0.00118217699F});
  expect_frequencies("yarn", R"(, "factor": 4.0, "original_max_position_embeddings": 64)",
                     "10000.0", {1, 0.0625F, 0.00249999994F, 0.000250000012F});
  expect_frequencies("yarn",
                     R"(, "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 4.0,
                        "beta_slow": 1.0)",
                     "10000.0", {1, 0.0250000004F, 0.00249999994F, 0.000250000012F});
}

TEST(Rotary, YarnScalesTheAngles) {
  const auto options = RotaryOptions::from_config(
      with_rope(
          R"("rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0})"),
      8);
  EXPECT_NEAR(options.attention_factor, 1.138629436111989, 1e-12);
  Rotary rotary(options);
  const auto [cosine, sine] = rotary.at(0, 1, at::kCPU);
  EXPECT_FLOAT_EQ(cosine.max().item<float>(), 1.138629436F);
  EXPECT_FLOAT_EQ(sine.abs().max().item<float>(), 0.0F);
}

TEST(Rotary, PositionsThatAreNamedAndThoseThatFollowHaveTheSameAngles) {
  Rotary rotary(RotaryOptions::from_config(with_rope(R"("rope_theta": 10000.0)"), 8));
  const auto [named_cosine, named_sine] = rotary.at(torch::tensor({{5, 6, 700}}, at::kLong));
  const auto [cosine, sine] = rotary.at(5, 2, at::kCPU);
  EXPECT_TRUE(at::equal(named_cosine.slice(0, 0, 2), cosine));
  EXPECT_TRUE(at::equal(named_sine.slice(0, 0, 2), sine));
  EXPECT_NEAR(named_cosine[2][0].item<double>(), std::cos(700.0), 1e-5);
}

TEST(Rotary, TurnsEachTextByItsOwnPositions) {
  Rotary rotary(RotaryOptions::from_config(with_rope(R"("rope_theta": 10000.0)"), 8));
  const at::Tensor x = at::randn({2, 3, 4, 8});
  const at::Tensor positions = torch::tensor({{0, 1, 2}, {7, 5, 900}}, at::kLong);
  const auto [cosine, sine] = rotary.at(positions);
  const at::Tensor both = rotate(x, cosine, sine);
  for (int64_t text = 0; text < 2; ++text) {
    const auto [own_cosine, own_sine] = rotary.at(positions.slice(0, text, text + 1));
    EXPECT_TRUE(at::equal(both[text], rotate(x.slice(0, text, text + 1), own_cosine, own_sine)[0]));
  }
  const auto [first_cosine, first_sine] = rotary.at(0, 3, at::kCPU);
  EXPECT_TRUE(at::allclose(both[0], rotate(x, first_cosine, first_sine)[0], 0, 1e-6));
}

// A CUDA graph has the addresses of what it reads.
TEST(Rotary, ARecordedStepKeepsTheTableThatALongerTextReplaces) {
  Rotary rotary(RotaryOptions::from_config(with_rope(R"("rope_theta": 10000.0)"), 8));
  auto actions = std::make_optional<device::ReplayActions>();
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> table;
  {
    const device::ReplayActions::Scope recording(*actions);
    const auto [cosine, sine] = rotary.at(0, 8, at::kCPU);
    table = cosine.storage().getWeakStorageImpl();
  }
  (void)rotary.at(0, 100000, at::kCPU);
  EXPECT_FALSE(table->expired());
  actions.reset();
  EXPECT_TRUE(table->expired());
}

TEST(Rotary, SettingsThatMakeNoSenseAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> wrong{
      {R"("rope_parameters": {"rope_type": "spiral"})",
       "'rope_parameters.rope_type' in config.json is 'spiral'; known: default, dynamic, "
       "linear, "
       "llama3 and yarn"},
      {R"("rope_scaling": {"type": "linear", "factor": 0})",
       "'rope_scaling.factor' in config.json must be above 0"},
      {R"("rope_theta": -1)", "'rope_theta' in config.json must be above 0"},
      {R"("rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
           "high_freq_factor": 4})",
       "'rope_parameters.high_freq_factor' in config.json must be above low_freq_factor"},
      {R"("partial_rotary_factor": 0.5)", "'partial_rotary_factor' in config.json must be 1"}};
  for (const auto& [settings, message] : wrong) {
    try {
      (void)RotaryOptions::from_config(with_rope(settings), 8);
      ADD_FAILURE() << settings;
    } catch (const DataError& error) {
      EXPECT_EQ(error.message(), message);
    }
  }
}

std::vector<int64_t> buckets(int64_t first, int64_t keys, bool bidirectional) {
  const at::Tensor found =
      relative_position_buckets(first, 1, keys, bidirectional, 8, 16, at::kCPU);
  return {found.data_ptr<int64_t>(), found.data_ptr<int64_t>() + found.numel()};
}

TEST(RelativePositions, NearOnesHaveABucketEachAndFarOnesShare) {
  EXPECT_THAT(buckets(20, 41, true),
              ElementsAre(3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 1, 0, 5, 6, 6, 6,
                          6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7));
  EXPECT_THAT(buckets(40, 41, false),
              ElementsAre(7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
                          7, 7, 7, 7, 6, 6, 6, 6, 5, 5, 4, 4, 3, 2, 1, 0));
}

}  // namespace
}  // namespace accelerate::transformers
