// T5 without a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "accelerate/transformers/model.h"
#include "transformers/models/layers.h"
#include "transformers/models/t5_stack.h"

namespace accelerate::transformers {

enum class T5Parts { kBoth, kEncoder };

// What a decoder sees of each token those before it: a start token, then all but the last.
at::Tensor shifted_right(const at::Tensor& tokens, const ModelConfig& config);

class T5Model : public PretrainedModel {
 public:
  explicit T5Model(const ModelConfig& config, T5Parts parts = T5Parts::kBoth);

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options = {}) override {
    return decode(inputs, options);
  }
  std::string architecture() const override { return "T5Model"; }
  std::string base_model_prefix() const override { return "transformer"; }
  std::vector<std::pair<std::string, std::string>> tied_weights() const override;
  bool untie(const std::string& name) override;
  std::vector<std::string> token_parameters() const override;
  std::vector<std::string> keep_in_fp32_modules() const override { return {"wo"}; }
  bool is_encoder_decoder() const override { return true; }
  at::Tensor encode(const ModelInputs& inputs) override { return encode_states(inputs, nullptr); }
  void initialise(const std::string& name, at::Tensor parameter) const override;

  // encode(), with the hidden states of each layer where they are wanted.
  at::Tensor encode_states(const ModelInputs& inputs, std::vector<at::Tensor>* hidden_states);
  int64_t width() const { return shared_->weight.size(1); }

 protected:
  // last_hidden_state is that of the decoder.
  ModelOutput decode(const ModelInputs& inputs, const ForwardOptions& options);

  Embedding shared_;
  T5Stack encoder_, decoder_{nullptr};
  Embedding encoder_tokens_{nullptr}, decoder_tokens_{nullptr};  // where they are not shared

 private:
  T5Model(const ModelConfig& config, const T5Options& options, T5Parts parts);
};

}  // namespace accelerate::transformers
