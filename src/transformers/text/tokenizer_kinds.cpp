#include "transformers/text/tokenizer_kinds.h"

#include <vector>

namespace accelerate::transformers {
namespace {

std::vector<TokenizerKind> make_kinds() {
  const SpecialTokens bert{
      .unk = "[UNK]", .sep = "[SEP]", .pad = "[PAD]", .cls = "[CLS]", .mask = "[MASK]"};
  const SpecialTokens roberta{.bos = "<s>",
                              .eos = "</s>",
                              .unk = "<unk>",
                              .sep = "</s>",
                              .pad = "<pad>",
                              .cls = "<s>",
                              .mask = "<mask>"};
  const SpecialTokens gpt2{.bos = "<|endoftext|>", .eos = "<|endoftext|>", .unk = "<|endoftext|>"};
  const SpecialTokens llama{.bos = "<s>", .eos = "</s>", .unk = "<unk>"};
  const SpecialTokens t5{.eos = "</s>", .unk = "<unk>", .pad = "<pad>"};
  return {
      {.class_name = "BertTokenizer",
       .model_type = "bert",
       .tokens = bert,
       .has_token_type_ids = true},
      {.class_name = "DistilBertTokenizer", .model_type = "distilbert", .tokens = bert},
      {.class_name = "RobertaTokenizer", .model_type = "roberta", .tokens = roberta},
      {.class_name = "GPT2Tokenizer", .model_type = "gpt2", .tokens = gpt2},
      {.class_name = "LlamaTokenizer",
       .model_type = "",
       .tokens = llama,
       .padding_side = TokenSide::kLeft},
      {.class_name = "T5Tokenizer", .model_type = "t5", .tokens = t5},
  };
}

}  // namespace

const TokenizerKind* find_tokenizer_kind(std::string_view class_name, std::string_view model_type) {
  static const std::vector<TokenizerKind> kinds = make_kinds();
  constexpr std::string_view kFast = "Fast";
  if (class_name.ends_with(kFast)) class_name.remove_suffix(kFast.size());
  for (const TokenizerKind& kind : kinds) {
    if (!class_name.empty() ? kind.class_name == class_name
                            : !model_type.empty() && kind.model_type == model_type) {
      return &kind;
    }
  }
  return nullptr;
}

}  // namespace accelerate::transformers
