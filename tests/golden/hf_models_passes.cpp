// One pass forwards and backwards through recorded models: logits, hidden states, loss, gradients.
#include <accelerate/accelerate.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "golden/hf_models.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
namespace tf = accelerate::transformers;

// Gradients of, say, a key's bias are zero but for rounding: as large as this part of all others.
constexpr double kRoundingOfTotal = 1e-2;
// bfloat16 has eight bits.
constexpr double kRoundingOfBfloat16 = 1e-2;

// Of [batch, positions, ...] the rows that are not padding; everything if it is of another shape.
at::Tensor without_padding(const at::Tensor& values, const at::Tensor& mask) {
  if (!mask.defined() || values.dim() < 3 || values.size(0) != mask.size(0) ||
      values.size(1) != mask.size(1)) {
    return values;
  }
  return values.index({mask.to(at::kBool)});
}

void check_outputs(const std::string& name, const tf::ModelOutput& output, const at::Tensor& mask,
                   const SafetensorsFile& tensors, Differences& differences) {
  int compared = 0;
  const auto compare = [&](const std::string& what, const at::Tensor& actual) {
    if (!tensors.contains(name + "." + what)) return false;
    differences.expect_near(what, without_padding(actual, mask),
                            without_padding(tensors.tensor(name + "." + what), mask));
    ++compared;
    return true;
  };
  compare("logits", output.logits);
  compare("last_hidden_state", output.last_hidden_state);
  compare("pooler_output", output.pooler_output);
  EXPECT_GT(compared, 0);
  const std::string prefix = "hidden_states.";
  for (size_t i = 0; i < output.hidden_states.size(); ++i) {
    const std::string layer = prefix + std::to_string(i);
    if (!compare(layer, output.hidden_states[i])) {
      EXPECT_FALSE(tensors.contains(name + "." + prefix + "0")) << layer << " was not recorded";
    }
  }
  EXPECT_FALSE(tensors.contains(name + "." + prefix + std::to_string(output.hidden_states.size())));
}

void check_gradients(const std::string& name, const json& recorded,
                     const tf::PretrainedModel& model, const SafetensorsFile& tensors,
                     Differences& differences) {
  double sum_of_squares = 0;
  size_t seen = 0;
  const double total = recorded.at("total_grad_norm").get<double>();
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& gradient = item.value().grad();
    if (!recorded.at("grad_norm").contains(item.key())) {
      EXPECT_FALSE(gradient.defined()) << item.key() << " has a gradient that was not recorded";
      continue;
    }
    ASSERT_TRUE(gradient.defined()) << item.key();
    ++seen;
    const double norm = gradient.to(at::kDouble).norm().item<double>();
    sum_of_squares += norm * norm;
    differences.expect_near("norm of the gradient of " + item.key(), norm,
                            recorded.at("grad_norm").at(item.key()).get<double>(),
                            kRoundingOfTotal * total);
    const std::string stored = name + ".grad." + item.key();
    if (!tensors.contains(stored)) continue;
    differences.expect_near("gradient of " + item.key(), gradient, tensors.tensor(stored),
                            kRoundingOfTotal * total);
  }
  EXPECT_EQ(seen, recorded.at("grad_norm").size());
  differences.expect_near("norm of all gradients", std::sqrt(sum_of_squares), total);
}

void check_passes(const RecordedModel& recorded, Differences& differences) {
  const auto model = recorded.load();
  EXPECT_FALSE(model->is_training());
  EXPECT_EQ(model->architecture(), recorded.io.at("class").get<std::string>());
  const SafetensorsFile tensors = recorded.tensors();
  for (const auto& [name, expected] : recorded.io.at("cases").items()) {
    SCOPED_TRACE("case " + name);
    const tf::ModelInputs inputs = inputs_of_case(recorded, tensors, name);
    model->zero_grad();
    const tf::ModelOutput output = model->forward(inputs, {.output_hidden_states = true});
    check_outputs(name, output, model->is_encoder_decoder() ? at::Tensor() : inputs.attention_mask,
                  tensors, differences);
    if (!expected.contains("loss")) continue;
    differences.expect_near("loss", output.loss.item<double>(), expected.at("loss").get<double>());
    output.loss.backward();
    check_gradients(name, expected, *model, tensors, differences);
  }
}

void check_bfloat16(const RecordedModel& recorded, Differences&) {
  const auto model = recorded.load({});
  for (const at::Tensor& parameter : model->parameters()) {
    EXPECT_EQ(parameter.scalar_type(), at::kBFloat16);
  }
  const json& expected = recorded.io.at("bf16_compute");
  const auto output = model->forward(
      inputs_of_case(recorded, recorded.tensors(), expected.at("case").get<std::string>()));
  const double loss = expected.at("loss").get<double>();
  EXPECT_NEAR(output.loss.item<double>(), loss, kRoundingOfBfloat16 * std::abs(loss));
}

[[maybe_unused]] const int kPasses = register_model_tests("HfModelsPasses", check_passes);
[[maybe_unused]] const int kInBfloat16 = register_model_tests(
    "HfModelsInBfloat16",
    [](const RecordedModel& model) { return model.io.contains("bf16_compute"); }, check_bfloat16);

}  // namespace
}  // namespace accelerate::test
