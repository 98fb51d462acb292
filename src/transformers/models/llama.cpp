#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/ops.h"
#include "model_config/model_sizes.h"
#include "transformers/models/all_models.h"
#include "transformers/models/attention.h"
#include "transformers/models/config_document.h"
#include "transformers/models/decoding.h"
#include "transformers/models/layers.h"
#include "transformers/models/rotary.h"
#include "transformers/models/text_inputs.h"

namespace accelerate::transformers {
namespace {

using model_config::LlamaSizes;

// The token without a gradient, -1 if there is none.
int64_t padding_of(const ModelConfig& config, int64_t vocabulary) {
  int64_t padding = config.integer("pad_token_id", -1 - vocabulary);
  if (padding < 0) padding = std::max<int64_t>(padding + vocabulary, -1);  // from the end
  if (padding >= vocabulary) {
    throw DataError({.what = "'pad_token_id' in " + config.name() + " is " +
                             std::to_string(padding) + ", which is not a token of the vocabulary" +
                             document_of(config).changed_settings({"pad_token_id", "vocab_size"})});
  }
  return padding;
}

double llama_epsilon(const ModelConfig& config) {
  return config.non_negative("rms_norm_eps", 1e-6);
}

// What all layers of one call share.
struct LayerCall {
  AttendOptions attend{};
  at::Tensor cosine{}, sine{};
  KeyValueCache* cache = nullptr;
};

struct LlamaAttentionImpl : torch::nn::Module {
  explicit LlamaAttentionImpl(const LlamaSizes& sizes)
      : heads(sizes.heads),
        key_heads(sizes.key_heads),
        q_proj(projection("q_proj", sizes, heads)),
        k_proj(projection("k_proj", sizes, key_heads)),
        v_proj(projection("v_proj", sizes, key_heads)),
        o_proj(register_module(
            "o_proj", Linear(heads * sizes.head_width, sizes.width, sizes.attention_bias))) {}

  Linear projection(const std::string& name, const LlamaSizes& sizes, int64_t count) {
    return register_module(name,
                           Linear(sizes.width, count * sizes.head_width, sizes.attention_bias));
  }

  at::Tensor forward(const at::Tensor& x, const LayerCall& call, size_t layer) {
    const auto split = [](const at::Tensor& joined, int64_t count) {
      return joined.unflatten(-1, {count, -1});  // [batch, positions, heads, width]
    };
    const at::Tensor query = rotate(split(q_proj->forward(x), heads), call.cosine, call.sine);
    at::Tensor key = rotate(split(k_proj->forward(x), key_heads), call.cosine, call.sine);
    at::Tensor value = split(v_proj->forward(x), key_heads);
    const bool plain = call.cache == nullptr && !call.attend.mask.defined() && heads == key_heads;
    if (plain) {
      const at::Tensor seen = ops::attention(
          query, key, value, {.causal = call.attend.causal, .dropout = call.attend.dropout});
      return o_proj->forward(seen.flatten(2));
    }
    key = key.transpose(1, 2);
    value = value.transpose(1, 2);
    if (call.cache != nullptr) std::tie(key, value) = call.cache->append(layer, key, value);
    return o_proj->forward(merge_heads(attend(query.transpose(1, 2), key, value, call.attend)));
  }

  const int64_t heads, key_heads;
  Linear q_proj, k_proj, v_proj, o_proj;
};
TORCH_MODULE(LlamaAttention);

struct LlamaMlpImpl : torch::nn::Module {
  LlamaMlpImpl(const ModelConfig& config, const LlamaSizes& sizes)
      : gate_proj(projection("gate_proj", sizes.width, sizes.inner_width, sizes.mlp_bias)),
        up_proj(projection("up_proj", sizes.width, sizes.inner_width, sizes.mlp_bias)),
        down_proj(projection("down_proj", sizes.inner_width, sizes.width, sizes.mlp_bias)),
        act(activation(config.text("hidden_act", "silu"), "hidden_act",
                       config.source_of("hidden_act"))),
        is_swiglu(is_silu(config.text("hidden_act", "silu")) && !sizes.mlp_bias) {}

  static bool is_silu(const std::string& name) { return name == "silu" || name == "swish"; }

  Linear projection(const std::string& name, int64_t in, int64_t out, bool has_bias) {
    return register_module(name, Linear(in, out, has_bias));
  }

  at::Tensor forward(const at::Tensor& x) {
    return down_proj->forward(is_swiglu ? ops::linear_swiglu(x, gate_proj->weight, up_proj->weight)
                                        : act(gate_proj->forward(x)) * up_proj->forward(x));
  }

  Linear gate_proj, up_proj, down_proj;
  Activation act;
  const bool is_swiglu;
};
TORCH_MODULE(LlamaMlp);

// Adds what the last branch gave, undefined before the first, to the stream of the layers, and
// norms the sum: {sum, normed}.
std::tuple<at::Tensor, at::Tensor> add_and_norm(const at::Tensor& x, const at::Tensor& branch,
                                                const RmsNorm& norm) {
  if (!branch.defined()) return {x, ops::rms_norm(x, norm->weight, norm->eps)};
  return ops::residual_rms_norm(x, branch, norm->weight, norm->eps);
}

struct LlamaLayerImpl : torch::nn::Module {
  LlamaLayerImpl(const ModelConfig& config, const LlamaSizes& sizes)
      : self_attn(register_module("self_attn", LlamaAttention(sizes))),
        mlp(register_module("mlp", LlamaMlp(config, sizes))),
        input_layernorm(
            register_module("input_layernorm", RmsNorm(sizes.width, llama_epsilon(config)))),
        post_attention_layernorm(register_module("post_attention_layernorm",
                                                 RmsNorm(sizes.width, llama_epsilon(config)))) {}

  // Of x, whose norm by input_layernorm is `normed`. Returns the sum after attention, and the
  // branch that is still to be added to it.
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& normed,
                                             const LayerCall& call, size_t layer) {
    const auto [sum, again] =
        add_and_norm(x, self_attn->forward(normed, call, layer), post_attention_layernorm);
    return {sum, mlp->forward(again)};
  }

  LlamaAttention self_attn;
  LlamaMlp mlp;
  RmsNorm input_layernorm, post_attention_layernorm;
};
TORCH_MODULE(LlamaLayer);

class LlamaModel : public PretrainedModel {
 public:
  explicit LlamaModel(const ModelConfig& config)
      : LlamaModel(config, model_config::llama_sizes(document_of(config))) {}

  LlamaModel(const ModelConfig& config, const LlamaSizes& sizes)
      : PretrainedModel(config),
        padding_(padding_of(config, sizes.vocabulary)),
        attention_dropout_(config.probability("attention_dropout", 0.0)),
        embed_tokens_(
            register_module("embed_tokens", Embedding(sizes.vocabulary, sizes.width, padding_))),
        layers_(register_module("layers", torch::nn::ModuleList())),
        norm_(nullptr),
        rotary_(RotaryOptions::from_config(config, sizes.head_width)) {
    for (int64_t i = 0; i < sizes.layers; ++i) {
      all_layers_.emplace_back(config, sizes);
      layers_->push_back(all_layers_.back());
    }
    norm_ = register_module("norm", RmsNorm(sizes.width, llama_epsilon(config)));
  }

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options = {}) override {
    const int64_t past = options.cache != nullptr ? options.cache->length() : 0;
    check_text(inputs, {.vocabulary = embed_tokens_->weight.size(0)}, architecture(), past);
    const int64_t count = inputs.input_ids.size(1);
    ModelOutput output;
    at::Tensor x = embed_tokens_->forward(inputs.input_ids);
    LayerCall call{.attend = causal_attention(count, past, inputs.attention_mask, x.device()),
                   .cache = options.cache};
    call.attend.dropout = is_training() ? attention_dropout_ : 0.0;
    std::tie(call.cosine, call.sine) = inputs.position_ids.defined()
                                           ? rotary_.at(inputs.position_ids)
                                           : rotary_.at(past, count, x.device());
    at::Tensor branch, normed;
    for (size_t layer = 0; layer < all_layers_.size(); ++layer) {
      std::tie(x, normed) = add_and_norm(x, branch, all_layers_[layer]->input_layernorm);
      if (options.output_hidden_states) output.hidden_states.push_back(x);
      std::tie(x, branch) = all_layers_[layer]->forward(x, normed, call, layer);
    }
    output.last_hidden_state = std::get<1>(add_and_norm(x, branch, norm_));
    if (options.output_hidden_states) output.hidden_states.push_back(output.last_hidden_state);
    return output;
  }

  std::string architecture() const override { return "LlamaModel"; }
  std::string base_model_prefix() const override { return "model"; }
  void initialise(const std::string& name, at::Tensor parameter) const override {
    PretrainedModel::initialise(name, parameter);
    const at::NoGradGuard no_gradient;
    if (name.ends_with("embed_tokens.weight") && padding_ >= 0)
      parameter.select(0, padding_).zero_();
  }

  std::vector<std::string> token_parameters() const override { return {"embed_tokens.weight"}; }

  const Embedding& embedding() const { return embed_tokens_; }
  int64_t width() const { return embed_tokens_->weight.size(1); }

 private:
  const int64_t padding_;
  const double attention_dropout_;
  Embedding embed_tokens_;
  torch::nn::ModuleList layers_;
  std::vector<LlamaLayer> all_layers_{};  // those of layers_
  RmsNorm norm_;
  Rotary rotary_;
};

// What the models with a head share: the body, as "model".
class LlamaWithHead : public PretrainedModel {
 public:
  explicit LlamaWithHead(const ModelConfig& config)
      : PretrainedModel(config),
        model_(register_module("model", std::make_shared<LlamaModel>(config))) {}

  std::string base_model_prefix() const override { return "model"; }
  void initialise(const std::string& name, at::Tensor parameter) const override {
    model_->initialise(name, parameter);
  }
  std::vector<std::string> token_parameters() const override {
    return prefixed("model", model_->token_parameters());
  }

 protected:
  const std::shared_ptr<LlamaModel> model_;
};

class LlamaForCausalLm : public LlamaWithHead, public FactoredLogits {
 public:
  explicit LlamaForCausalLm(const ModelConfig& config)
      : LlamaWithHead(config),
        head_(*this, model_->embedding(),
              model_config::llama_sizes(document_of(config)).tied_words) {}

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options) override {
    return head_.next_token(model_->forward(inputs, options), inputs, options);
  }
  std::string architecture() const override { return "LlamaForCausalLM"; }
  bool can_generate() const override { return true; }
  std::vector<std::pair<std::string, std::string>> tied_weights() const override {
    return head_.tied_weights("model.embed_tokens.weight");
  }
  bool untie(const std::string& name) override { return head_.untie(*this, name); }
  std::vector<std::string> token_parameters() const override {
    std::vector<std::string> names = LlamaWithHead::token_parameters();
    for (std::string& name : head_.token_parameters()) names.push_back(std::move(name));
    return names;
  }
  const at::Tensor& output_matrix() const override { return head_.weight(); }
  at::Tensor last_features(const ModelInputs& inputs, const ForwardOptions& options) override {
    return model_->forward(inputs, options).last_hidden_state.select(1, -1);
  }

 private:
  LanguageHead head_;
};

class LlamaForSequenceClassification : public LlamaWithHead {
 public:
  explicit LlamaForSequenceClassification(const ModelConfig& config)
      : LlamaWithHead(config),
        score_(register_module("score", Linear(model_->width(), config.num_labels(), false))) {}

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options) override {
    return classify_last_token(model_->forward(inputs, options), score_, config(), inputs);
  }
  std::string architecture() const override { return "LlamaForSequenceClassification"; }

 private:
  Linear score_;
};

class LlamaForTokenClassification : public LlamaWithHead {
 public:
  explicit LlamaForTokenClassification(const ModelConfig& config)
      : LlamaWithHead(config),
        dropout_(token_head_dropout(config)),
        score_(register_module("score", Linear(model_->width(), config.num_labels()))) {}

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options) override {
    ModelOutput body = model_->forward(inputs, options);
    body.last_hidden_state = drop_out(body.last_hidden_state, dropout_, is_training());
    return classify_tokens(std::move(body), score_, inputs);
  }
  std::string architecture() const override { return "LlamaForTokenClassification"; }

 private:
  const double dropout_;
  Linear score_;
};

}  // namespace

void register_llama() {
  register_own<LlamaModel>("llama", ModelTask::kBase);
  register_own<LlamaForCausalLm>("llama", ModelTask::kCausalLm);
  register_own<LlamaForSequenceClassification>("llama", ModelTask::kSequenceClassification);
  register_own<LlamaForTokenClassification>("llama", ModelTask::kTokenClassification);
}

}  // namespace accelerate::transformers
