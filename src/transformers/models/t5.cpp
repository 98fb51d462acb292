#include "transformers/models/t5.h"

#include <ATen/ATen.h>

#include <cmath>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "transformers/models/all_models.h"
#include "transformers/models/config_document.h"
#include "transformers/models/decoding.h"
#include "transformers/models/losses.h"
#include "transformers/models/text_inputs.h"

namespace accelerate::transformers {
namespace {

constexpr const char* kEncoderTokens = "encoder.embed_tokens.weight";
constexpr const char* kDecoderTokens = "decoder.embed_tokens.weight";

// As many as the decoder is to say.
void check_decoder_labels(const at::Tensor& labels, const at::Tensor& decoded, int64_t vocabulary) {
  std::ostringstream text;
  text << "labels has the shape " << labels.sizes();
  if (labels.dim() != 2) {
    throw UsageError({.what = text.str() + ", not [batch, positions]",
                      .hint = "a single text is a batch of one: unsqueeze(0)"});
  }
  if (decoded.defined() && labels.sizes() != decoded.sizes()) {
    text << ", decoder_input_ids has " << decoded.sizes();
    throw UsageError(
        {.what = text.str(), .hint = "labels must have the shape of decoder_input_ids"});
  }
  check_labels(labels, labels.numel(), vocabulary);
}

}  // namespace

at::Tensor shifted_right(const at::Tensor& tokens, const ModelConfig& config) {
  const at::Tensor start =
      at::full({tokens.size(0), 1},
               config.integer("decoder_start_token_id", config.integer("pad_token_id", 0)),
               tokens.options());
  const at::Tensor moved = at::cat({start, tokens.slice(1, 0, -1)}, 1);
  return moved.masked_fill(moved == kNoLabel, config.integer("pad_token_id", 0));
}

T5Model::T5Model(const ModelConfig& config, T5Parts parts)
    : T5Model(config, T5Options::from_config(config), parts) {}

T5Model::T5Model(const ModelConfig& config, const T5Options& options, T5Parts parts)
    : PretrainedModel(config),
      shared_(register_module("shared", Embedding(options.vocabulary, options.width))),
      encoder_(register_module("encoder", T5Stack(options, false))) {
  if (parts == T5Parts::kBoth) decoder_ = register_module("decoder", T5Stack(options, true));
}

std::vector<std::pair<std::string, std::string>> T5Model::tied_weights() const {
  std::vector<std::pair<std::string, std::string>> names;
  if (encoder_tokens_.is_empty()) names.emplace_back(kEncoderTokens, "shared.weight");
  if (!decoder_.is_empty() && decoder_tokens_.is_empty()) {
    names.emplace_back(kDecoderTokens, "shared.weight");
  }
  return names;
}

bool T5Model::untie(const std::string& name) {
  const bool encoder = name == kEncoderTokens;
  T5Stack& stack = encoder ? encoder_ : decoder_;
  Embedding& own = encoder ? encoder_tokens_ : decoder_tokens_;
  if ((!encoder && name != kDecoderTokens) || stack.is_empty() || !own.is_empty()) return false;
  const auto shape = shared_->weight.sizes();
  own = stack->register_module("embed_tokens", Embedding(shape[0], shape[1]));
  return true;
}

std::vector<std::string> T5Model::token_parameters() const {
  std::vector<std::string> names{"shared.weight"};
  if (!encoder_tokens_.is_empty()) names.emplace_back(kEncoderTokens);
  if (!decoder_tokens_.is_empty()) names.emplace_back(kDecoderTokens);
  return names;
}

at::Tensor T5Model::encode_states(const ModelInputs& inputs,
                                  std::vector<at::Tensor>* hidden_states) {
  const Embedding& tokens = encoder_tokens_.is_empty() ? shared_ : encoder_tokens_;
  check_text({.input_ids = inputs.input_ids, .attention_mask = inputs.attention_mask},
             {.vocabulary = tokens->weight.size(0)}, architecture());
  return encoder_->forward(tokens->forward(inputs.input_ids),
                           {.mask = inputs.attention_mask, .hidden_states = hidden_states});
}

void T5Model::initialise(const std::string& name, at::Tensor parameter) const {
  const double factor = config().non_negative("initializer_factor", 1.0);
  const at::NoGradGuard no_gradient;
  if (name.ends_with("bias")) {
    parameter.zero_();
    return;
  }
  if (parameter.dim() < 2) {
    parameter.fill_(factor);
    return;
  }
  const auto root = [](int64_t size) { return 1 / std::sqrt(static_cast<double>(size)); };
  double deviation = factor;
  if (name.ends_with("relative_attention_bias.weight")) {
    deviation *= root(shared_->weight.size(1));
  } else if (name.ends_with(".q.weight")) {
    deviation *= root(parameter.size(1) * model_config::t5_sizes(document_of(config())).head_width);
  } else if (!name.ends_with("shared.weight") && !name.ends_with("lm_head.weight") &&
             !name.ends_with("embed_tokens.weight") && name != "classifier.weight") {
    deviation *= root(parameter.size(1));
  }
  parameter.normal_(0.0, deviation);
}

ModelOutput T5Model::decode(const ModelInputs& inputs, const ForwardOptions& options) {
  const Embedding& tokens = decoder_tokens_.is_empty() ? shared_ : decoder_tokens_;
  const int64_t vocabulary = tokens->weight.size(0);
  at::Tensor decoded = inputs.decoder_input_ids;
  if (inputs.labels.defined()) check_decoder_labels(inputs.labels, decoded, vocabulary);
  if (!decoded.defined() && inputs.labels.defined()) {
    decoded = shifted_right(inputs.labels, config());
  }
  if (!decoded.defined()) {
    throw UsageError(
        {.what = architecture() + " needs decoder_input_ids, or labels to make them of"});
  }
  const int64_t past = options.cache != nullptr ? options.cache->length() : 0;
  check_text(
      {.input_ids = decoded, .attention_mask = inputs.decoder_attention_mask},
      {.vocabulary = vocabulary, .ids = "decoder_input_ids", .mask = "decoder_attention_mask"},
      architecture() + "'s decoder", past);
  ModelOutput output;
  output.encoder_last_hidden_state = options.encoder_last_hidden_state.defined()
                                         ? options.encoder_last_hidden_state
                                         : encode(inputs);
  const at::Tensor& encoded = output.encoder_last_hidden_state;
  const at::Tensor& mask = inputs.attention_mask;
  if (encoded.size(0) != decoded.size(0) ||
      (mask.defined() && mask.sizes() != encoded.sizes().slice(0, 2))) {
    throw UsageError({.what = "the encoder's output, its attention_mask and decoder_input_ids are "
                              "not of the same texts"});
  }
  output.last_hidden_state = decoder_->forward(
      tokens->forward(decoded),
      {.mask = inputs.decoder_attention_mask,
       .encoded = output.encoder_last_hidden_state,
       .encoded_mask = inputs.attention_mask,
       .cache = options.cache,
       .hidden_states = options.output_hidden_states ? &output.hidden_states : nullptr});
  return output;
}

namespace {

class T5ForConditionalGeneration : public T5Model, public FactoredLogits {
 public:
  explicit T5ForConditionalGeneration(const ModelConfig& config)
      : T5Model(config),
        // Older files say it by whether input and output share a matrix, which they always do.
        scaled_(config.flag("scale_decoder_outputs", config.flag("tie_word_embeddings", true))),
        head_(*this, shared_, true) {}

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options) override;
  std::string architecture() const override { return "T5ForConditionalGeneration"; }
  bool can_generate() const override { return true; }
  std::vector<std::pair<std::string, std::string>> tied_weights() const override {
    auto names = T5Model::tied_weights();
    for (auto& pair : head_.tied_weights("shared.weight")) names.push_back(std::move(pair));
    return names;
  }
  bool untie(const std::string& name) override {
    return head_.untie(*this, name) || T5Model::untie(name);
  }
  std::vector<std::string> token_parameters() const override {
    std::vector<std::string> names = T5Model::token_parameters();
    for (std::string& name : head_.token_parameters()) names.push_back(std::move(name));
    return names;
  }
  const at::Tensor& output_matrix() const override { return head_.weight(); }
  at::Tensor last_features(const ModelInputs& inputs, const ForwardOptions& options) override {
    return scaled(decode(inputs, options).last_hidden_state.select(1, -1));
  }

 private:
  at::Tensor scaled(const at::Tensor& features) const {
    return scaled_ ? features / std::sqrt(static_cast<double>(shared_->weight.size(1))) : features;
  }

  const bool scaled_;
  LanguageHead head_;
};

ModelOutput T5ForConditionalGeneration::forward(const ModelInputs& inputs,
                                                const ForwardOptions& options) {
  ModelOutput output = decode(inputs, options);
  const at::Tensor features = scaled(output.last_hidden_state);
  output.last_hidden_state = at::Tensor();
  head_.score(output, features, inputs.labels, options);
  return output;
}

}  // namespace

void register_t5() {
  register_own<T5Model>("t5", ModelTask::kBase);
  register_own<T5ForConditionalGeneration>("t5", ModelTask::kSeq2SeqLm);
}

}  // namespace accelerate::transformers
