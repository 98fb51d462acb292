#include "model_config/setting_names.h"

#include <array>

namespace accelerate::model_config {
namespace {

struct OtherName {
  std::string_view model_type, common, own;
};

constexpr std::array<OtherName, 11> kOtherNames{{
    {"distilbert", "hidden_size", "dim"},
    {"distilbert", "num_attention_heads", "n_heads"},
    {"distilbert", "num_hidden_layers", "n_layers"},
    {"gpt2", "hidden_size", "n_embd"},
    {"gpt2", "max_position_embeddings", "n_positions"},
    {"gpt2", "num_attention_heads", "n_head"},
    {"gpt2", "num_hidden_layers", "n_layer"},
    {"t5", "hidden_size", "d_model"},
    {"t5", "num_attention_heads", "num_heads"},
    {"t5", "num_hidden_layers", "num_layers"},
    {"t5", "head_dim", "d_kv"},
}};

}  // namespace

std::string_view own_setting_name(std::string_view model_type, std::string_view key) {
  for (const OtherName& name : kOtherNames) {
    if (name.common == key && name.model_type == model_type) return name.own;
  }
  return key;
}

}  // namespace accelerate::model_config
