// What the kind of a tokenizer implies where its files do not say it.
#pragma once

#include <string_view>

#include "accelerate/tokenizers.h"
#include "accelerate/transformers/pretrained_tokenizer.h"

namespace accelerate::transformers {

struct TokenizerKind {
  std::string_view class_name;  // as in tokenizer_config.json, without "Fast"
  std::string_view model_type;  // as in config.json; "": of no model by itself
  SpecialTokens tokens{};
  bool has_token_type_ids = false;
  TokenSide padding_side = TokenSide::kRight;
};

// Of a class or, where that is empty, of a type of model; nullptr if it is not known.
const TokenizerKind* find_tokenizer_kind(std::string_view class_name, std::string_view model_type);

}  // namespace accelerate::transformers
