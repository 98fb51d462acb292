// A model whose next token depends on the last one alone, by a table.
#pragma once

#include <ATen/ATen.h>
#include <accelerate/transformers/model.h>

#include <string>
#include <utility>
#include <vector>

namespace accelerate::test {

class FixedModel : public transformers::PretrainedModel {
 public:
  // scores[i][j]: of token j after token i.
  explicit FixedModel(at::Tensor table)
      : PretrainedModel(transformers::ModelConfig::from_json("{}")), scores(std::move(table)) {}

  transformers::ModelOutput forward(const transformers::ModelInputs& inputs,
                                    const transformers::ForwardOptions& options) override {
    given.push_back(inputs.input_ids.size(1));
    was_training = was_training || is_training();
    had_gradients = had_gradients || at::GradMode::is_enabled();
    had_mask = had_mask || inputs.attention_mask.defined();
    if (options.cache != nullptr) {
      const at::Tensor nothing = at::zeros({inputs.input_ids.size(0), 1, given.back(), 1});
      options.cache->append(0, nothing, nothing);
    }
    return {.logits = at::embedding(scores, inputs.input_ids)};
  }
  std::string architecture() const override { return "FixedModel"; }
  std::string base_model_prefix() const override { return ""; }
  bool can_generate() const override { return true; }

  const at::Tensor scores;
  std::vector<int64_t> given{};  // positions in each call
  bool was_training = false, had_gradients = false, had_mask = false;
};

// After i comes i + 1 of `count`, else i + 2 and so on, around.
inline FixedModel counting_model(int64_t count = 32) {
  at::Tensor table = at::empty({count, count});
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t step = 1; step <= count; ++step) {
      table[i][(i + step) % count] = -static_cast<double>(step);
    }
  }
  return FixedModel(table);
}

inline transformers::ModelInputs texts_of(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<at::Tensor> tensors;
  for (const auto& row : rows) tensors.push_back(at::tensor(row, at::kLong));
  return {.input_ids = at::stack(tensors)};
}

inline std::vector<std::vector<int64_t>> rows_of(const at::Tensor& tensor) {
  std::vector<std::vector<int64_t>> rows;
  for (int64_t i = 0; i < tensor.size(0); ++i) {
    const at::Tensor row = tensor[i].contiguous();
    rows.emplace_back(row.data_ptr<int64_t>(), row.data_ptr<int64_t>() + row.numel());
  }
  return rows;
}

}  // namespace accelerate::test
