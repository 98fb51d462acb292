#include "transformers/text/text_tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "accelerate/errors.h"

namespace accelerate::transformers {

void throw_no_pad_token(const std::string& where) {
  throw UsageError({.what = "texts of different lengths need padding, and the tokenizer has no pad "
                            "token",
                    .where = where,
                    .hint = "choose one with set_pad_token(), for instance special_tokens().eos "
                            "where there is one"});
}

ModelInputs tensors_of(std::span<const Encoding> encodings, bool with_type_ids, bool can_pad) {
  if (encodings.empty()) {
    throw DataError({.what = "there is no text", .where = "PretrainedTokenizer"});
  }
  const auto rows = static_cast<int64_t>(encodings.size());
  const size_t length = encodings.front().size();
  for (size_t i = 0; i < encodings.size(); ++i) {
    if (encodings[i].size() == length) continue;
    if (!can_pad) throw_no_pad_token("PretrainedTokenizer");
    throw DataError(
        {.what = "texts 0 and " + std::to_string(i) + " have " + std::to_string(length) + " and " +
                 std::to_string(encodings[i].size()) + " tokens",
         .where = "PretrainedTokenizer",
         .hint = "tensors need texts of one length: give {.padding = Padding::kLongest}, "
                 "or {.truncation = true} where some are longer than max_length"});
  }
  const auto gather = [&](std::vector<int64_t> Encoding::*list) {
    at::Tensor tensor = at::empty({rows, static_cast<int64_t>(length)}, at::kLong);
    auto* out = tensor.data_ptr<int64_t>();
    for (const Encoding& encoding : encodings) {
      out = std::copy((encoding.*list).begin(), (encoding.*list).end(), out);
    }
    return tensor;
  };
  ModelInputs inputs{.input_ids = gather(&Encoding::ids),
                     .attention_mask = gather(&Encoding::attention_mask)};
  if (with_type_ids) inputs.token_type_ids = gather(&Encoding::type_ids);
  return inputs;
}

at::Tensor ids_on_cpu(const at::Tensor& ids, int64_t dimensions) {
  if (!ids.defined() || ids.dim() != dimensions || !at::isIntegralType(ids.scalar_type(), false)) {
    throw UsageError({.what = "expected whole numbers in " + std::to_string(dimensions) +
                              (dimensions == 1 ? " dimension" : " dimensions"),
                      .where = "PretrainedTokenizer::decode",
                      .hint = "decode() takes one text, batch_decode() a batch of them"});
  }
  return ids.to(at::kCPU, at::kLong).contiguous();
}

}  // namespace accelerate::transformers
