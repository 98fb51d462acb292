// Spaces as visible characters, as SentencePiece has them: settings that splitting and decoding
// share.
#pragma once

#include "transformers/tokenizers/json/json_fields.h"

namespace accelerate::tokenizers {

enum class PrependScheme { kFirst, kNever, kAlways };

struct Metaspace {
  char32_t replacement = 0x2581;
  PrependScheme prepend = PrependScheme::kAlways;  // of a replacement before a text without one
  bool split = true;
};

// Throws DataError for fields that do not fit.
Metaspace read_metaspace(const JsonFields& fields);

}  // namespace accelerate::tokenizers
