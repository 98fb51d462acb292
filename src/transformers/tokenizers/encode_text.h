// One text on its way through all parts of a tokenizer but the last.
#pragma once

#include <optional>
#include <string_view>

#include "transformers/tokenizers/parts.h"

namespace accelerate::tokenizers {

// Throws DataError if `text` is not valid UTF-8 or too long.
void check_text(std::string_view text);

// The tokens of `text`, without special ones. They belong to the text `sequence`: 0, or 1 for a
// pair. `word_id` counts for all of them where it is given.
Encoding encode_text(std::string_view text, int64_t sequence, std::optional<int64_t> word_id,
                     const Normalizer* normalizer, const PreTokenizer* pre_tokenizer,
                     const Model& model, const AddedTokens& added, Workspace& workspace);

}  // namespace accelerate::tokenizers
