// Texts that recorded models continue by the most likely token each time.
#include <ATen/ATen.h>
#include <accelerate/transformers/generation.h>
#include <gtest/gtest.h>

#include "golden/hf_models.h"

namespace accelerate::test {
namespace {

using nlohmann::json;
namespace tf = accelerate::transformers;
using Rows = std::vector<std::vector<int64_t>>;

at::Tensor tensor_of(const json& rows) {
  const auto values = rows.get<Rows>();
  const auto width = static_cast<int64_t>(values.at(0).size());
  at::Tensor result = at::empty({static_cast<int64_t>(values.size()), width}, at::kLong);
  for (size_t row = 0; row < values.size(); ++row) {
    std::copy(values[row].begin(), values[row].end(),
              result.data_ptr<int64_t>() + static_cast<int64_t>(row) * width);
  }
  return result;
}

Rows rows_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  Rows rows;
  for (int64_t row = 0; row < values.size(0); ++row) {
    const int64_t* first = values.data_ptr<int64_t>() + row * values.size(1);
    rows.emplace_back(first, first + values.size(1));
  }
  return rows;
}

void check_generation(const RecordedModel& recorded, Differences&) {
  const auto model = recorded.load();
  for (const auto& [name, expected] : recorded.io.at("generate").items()) {
    SCOPED_TRACE("case " + name);
    const tf::ModelInputs inputs{.input_ids = tensor_of(expected.at("input_ids")),
                                 .attention_mask = tensor_of(expected.at("attention_mask"))};
    for (const bool use_cache : {true, false}) {
      SCOPED_TRACE(use_cache ? "with a cache" : "without a cache");
      tf::GenerationOptions options{.max_new_tokens = expected.at("new_tokens").get<int64_t>(),
                                    .min_new_tokens = expected.at("min_new_tokens").get<int64_t>(),
                                    .use_cache = use_cache};
      EXPECT_EQ(rows_of(tf::generate(*model, inputs, options)),
                expected.at("sequences").get<Rows>());
      if (!expected.contains("without_min_new_tokens")) continue;
      options.min_new_tokens = 0;
      EXPECT_EQ(rows_of(tf::generate(*model, inputs, options)),
                expected.at("without_min_new_tokens").at("sequences").get<Rows>());
    }
  }
}

[[maybe_unused]] const int kGeneration = register_model_tests(
    "HfModelsGeneration", [](const RecordedModel& model) { return model.io.contains("generate"); },
    check_generation);

}  // namespace
}  // namespace accelerate::test
