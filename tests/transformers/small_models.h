// Small models with random values, for tests.
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

inline ModelConfig small_bert(const std::string& model_type = "bert") {
  return ModelConfig::from_json(R"({"model_type": ")" + model_type + R"(", "vocab_size": 40,
      "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24,
      "max_position_embeddings": 20, "type_vocab_size": 2, "hidden_dropout_prob": 0.1,
      "attention_probs_dropout_prob": 0.1, "initializer_range": 0.3})");
}

inline ModelConfig small_distilbert() {
  return ModelConfig::from_json(R"({"model_type": "distilbert", "vocab_size": 40, "dim": 16,
      "n_layers": 2, "n_heads": 4, "hidden_dim": 24, "max_position_embeddings": 20,
      "initializer_range": 0.3})");
}

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
      "decoder_start_token_id": 0, "is_encoder_decoder": true})");
}

// By the name that config.json has for it.
inline ModelConfig small_model(const std::string& model_type) {
  if (model_type == "distilbert") return small_distilbert();
  if (model_type == "gpt2") return small_gpt2();
  if (model_type == "llama") return small_llama();
  if (model_type == "t5") return small_t5();
  return small_bert(model_type);
}

// In train() mode, as from_config() makes it; biases and norms are random too.
inline std::shared_ptr<PretrainedModel> random_model(ModelTask task, const ModelConfig& config) {
  at::manual_seed(3);
  auto model = transformers::make_model(task, config);
  const at::NoGradGuard no_gradient;
  for (const at::Tensor& parameter : model->parameters()) {
    if (parameter.dim() == 1) parameter.add_(at::randn(parameter.sizes()).mul_(0.1));
  }
  return model;
}

// Texts of words 3 to 39, without padding.
inline at::Tensor random_texts(int64_t count, int64_t length, uint64_t seed = 1) {
  at::manual_seed(seed);
  return at::randint(3, 40, {count, length}, at::kLong);
}

}  // namespace accelerate::test
