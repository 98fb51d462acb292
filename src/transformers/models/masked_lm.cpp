#include "transformers/models/masked_lm.h"

#include <ATen/ATen.h>

#include <string>
#include <utility>
#include <vector>

#include "transformers/models/allocation.h"

namespace accelerate::transformers {

at::Tensor WordHead::operator()(const at::Tensor& x, const at::Tensor& words) const {
  const at::Tensor hidden = norm->forward(act(dense->forward(x)));
  return at::linear(hidden, weight.defined() ? weight : words, bias.defined() ? bias : tied_bias);
}

std::vector<std::pair<std::string, std::string>> WordHead::tied_weights(
    const std::string& words) const {
  std::vector<std::pair<std::string, std::string>> names;
  if (!weight.defined()) names.emplace_back(decoder_name + ".weight", words);
  if (!bias.defined()) names.emplace_back(decoder_name + ".bias", tied_bias_name);
  return names;
}

bool WordHead::untie(const std::string& name, const at::Tensor& words) {
  if (name == decoder_name + ".weight" && !weight.defined()) {
    weight = decoder->register_parameter("weight", new_parameter(words.sizes()));
    return true;
  }
  if (name == decoder_name + ".bias" && !bias.defined()) {
    bias = decoder->register_parameter("bias", new_parameter({words.size(0)}));
    return true;
  }
  return false;
}

std::vector<std::string> WordHead::token_parameters() const {
  std::vector<std::string> names;
  if (weight.defined()) names.push_back(decoder_name + ".weight");
  if (bias.defined()) names.push_back(decoder_name + ".bias");
  if (tied_bias.defined()) names.push_back(tied_bias_name);
  return names;
}

void set_masked_lm(ModelOutput& output, const WordHead& head, const at::Tensor& hidden,
                   const at::Tensor& words, const at::Tensor& labels, bool loss_only) {
  if (loss_only && labels.defined()) {
    const at::Tensor flat = labels.to(at::kLong).flatten();
    const at::Tensor rows = flat.ne(kNoLabel).nonzero().squeeze(1);
    const at::Tensor logits = head(hidden.flatten(0, 1).index_select(0, rows), words);
    output.loss = token_loss(logits, flat.index_select(0, rows));
    return;
  }
  output.logits = head(hidden, words);
  if (labels.defined()) output.loss = token_loss(output.logits, labels);
}

}  // namespace accelerate::transformers
