// Small encoders with random values, for tests.
#pragma once

#include <ATen/ATen.h>
#include <accelerate/transformers/pretrained.h>
#include <accelerate/transformers/registry.h>

#include <map>
#include <memory>
#include <string>

namespace accelerate::test {

using transformers::ModelConfig;
using transformers::ModelInputs;
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

inline ModelConfig small_encoder(const std::string& model_type) {
  return model_type == "distilbert" ? small_distilbert() : small_bert(model_type);
}

inline void set_all_dropout(ModelConfig& config, double probability) {
  for (const char* key : {"hidden_dropout_prob", "attention_probs_dropout_prob", "dropout",
                          "attention_dropout", "seq_classif_dropout"}) {
    config.set(key, probability);
  }
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
