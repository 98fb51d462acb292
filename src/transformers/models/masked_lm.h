// Models that say which word is behind a mask.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transformers/models/encoder_heads.h"
#include "transformers/models/layers.h"

namespace accelerate::transformers {

// From hidden states to scores of all words. Each architecture registers the parts under its own
// names.
struct WordHead {
  Linear dense{nullptr};
  LayerNorm norm{nullptr};
  Activation act{};
  // The last matrix is that of the embeddings unless it has parameters of its own.
  std::shared_ptr<torch::nn::Module> decoder{};
  std::string decoder_name{};  // "cls.predictions.decoder"
  at::Tensor weight{}, bias{};
  // What is tied to the bias, and its name, where it is not its own.
  at::Tensor tied_bias{};
  std::string tied_bias_name{};

  at::Tensor operator()(const at::Tensor& x, const at::Tensor& words) const;
  std::vector<std::pair<std::string, std::string>> tied_weights(const std::string& words) const;
  // `words` is the tied matrix.
  bool untie(const std::string& name, const at::Tensor& words);
  // Its own parameters with a row for each token.
  std::vector<std::string> token_parameters() const;
};

// Sets the logits and the loss. With `loss_only` only positions that have a label are looked at.
void set_masked_lm(ModelOutput& output, const WordHead& head, const at::Tensor& hidden,
                   const at::Tensor& words, const at::Tensor& labels, bool loss_only);

// `Base` has words(): the matrix of its embeddings. The derived class makes and registers the head.
template <class Base>
class EncoderForMaskedLm : public EncoderWithHead<Base> {
 public:
  explicit EncoderForMaskedLm(const ModelConfig& config)
      : EncoderWithHead<Base>(config, Base::for_head(config)) {}

  std::string architecture() const override { return std::string(Base::kName) + "ForMaskedLM"; }

  ModelOutput forward(const ModelInputs& inputs, const ForwardOptions& options = {}) override {
    auto [output, last] = this->encoded(inputs, options);
    set_masked_lm(output, head_, last, this->base().words(), inputs.labels, options.loss_only);
    return std::move(output);
  }

  std::vector<std::pair<std::string, std::string>> tied_weights() const override {
    return head_.tied_weights(std::string(Base::kPrefix) + ".embeddings.word_embeddings.weight");
  }
  std::vector<std::string> token_parameters() const override {
    std::vector<std::string> names = EncoderWithHead<Base>::token_parameters();
    for (std::string& name : head_.token_parameters()) names.push_back(std::move(name));
    return names;
  }
  bool untie(const std::string& name) override { return head_.untie(name, this->base().words()); }

 protected:
  // Unties all of it unless it is to be tied.
  void set_head(WordHead head, bool is_tied) {
    head_ = std::move(head);
    if (is_tied) return;
    head_.untie(head_.decoder_name + ".weight", this->base().words());
    head_.untie(head_.decoder_name + ".bias", this->base().words());
  }

 private:
  WordHead head_{};
};

}  // namespace accelerate::transformers
