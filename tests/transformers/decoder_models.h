// What tests of decoders share.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "transformers/small_models.h"

namespace accelerate::test {

// In eval() mode; biases and norms are random too.
inline std::shared_ptr<PretrainedModel> random_decoder(ModelTask task, const ModelConfig& config) {
  auto model = random_model(task, config);
  model->eval();
  return model;
}

// `texts`, each of one row, with padding of token 0 on the left, and their mask.
inline ModelInputs left_padded(const std::vector<at::Tensor>& texts) {
  int64_t longest = 0;
  for (const at::Tensor& text : texts) longest = std::max(longest, text.size(1));
  ModelInputs inputs{
      .input_ids = at::zeros({static_cast<int64_t>(texts.size()), longest}, at::kLong),
      .attention_mask = at::zeros({static_cast<int64_t>(texts.size()), longest}, at::kLong)};
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    inputs.input_ids[row].slice(0, longest - texts[i].size(1)).copy_(texts[i][0]);
    inputs.attention_mask[row].slice(0, longest - texts[i].size(1)).fill_(1);
  }
  return inputs;
}

}  // namespace accelerate::test
