// Small decoders with random values, for tests.
#pragma once

#include <ATen/ATen.h>
#include <accelerate/transformers/pretrained.h>
#include <accelerate/transformers/registry.h>

#include <memory>
#include <string>

namespace accelerate::test {

using transformers::ModelConfig;
using transformers::ModelInputs;
using transformers::ModelOutput;
using transformers::ModelTask;
using transformers::PretrainedModel;

inline ModelConfig small_gpt2() {
  return ModelConfig::from_json(R"({"model_type": "gpt2", "vocab_size": 40, "n_positions": 32,
      "n_embd": 16, "n_layer": 2, "n_head": 4, "eos_token_id": 1, "pad_token_id": 0,
      "initializer_range": 0.3})");
}

inline ModelConfig small_llama() {
  return ModelConfig::from_json(R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 16,
      "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 64, "eos_token_id": 1,
      "pad_token_id": 0, "initializer_range": 0.3})");
}

inline ModelConfig small_t5() {
  return ModelConfig::from_json(R"({"model_type": "t5", "vocab_size": 40, "d_model": 16, "d_kv": 4,
      "d_ff": 24, "num_layers": 2, "num_heads": 4, "relative_attention_num_buckets": 8,
      "relative_attention_max_distance": 16, "eos_token_id": 1, "pad_token_id": 0,
      "decoder_start_token_id": 0})");
}

inline ModelConfig small_decoder(const std::string& model_type) {
  return model_type == "gpt2" ? small_gpt2() : small_llama();
}

// In eval() mode; biases and norms are random too.
inline std::shared_ptr<PretrainedModel> random_decoder(ModelTask task, const ModelConfig& config) {
  at::manual_seed(3);
  auto model = transformers::make_model(task, config);
  model->eval();
  const at::NoGradGuard no_gradient;
  for (const at::Tensor& parameter : model->parameters()) {
    if (parameter.dim() == 1) parameter.add_(at::randn(parameter.sizes()).mul_(0.1));
  }
  return model;
}

// Texts of words 3 to 39, without padding.
inline at::Tensor random_words(int64_t count, int64_t length, uint64_t seed = 1) {
  at::manual_seed(seed);
  return at::randint(3, 40, {count, length}, at::kLong);
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
