// The normal forms of Unicode, with the way back to the original text.
#pragma once

#include "transformers/tokenizers/text/aligned_text.h"

namespace accelerate::tokenizers {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
void to_normal_form(AlignedText& text, NormalForm form);

// Lower case of every character by itself.
void to_lower_case(AlignedText& text);

}  // namespace accelerate::tokenizers
