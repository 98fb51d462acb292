// Cutting, joining and padding encodings.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "accelerate/tokenizers.h"

namespace accelerate::tokenizers {

// Windows of at most `max_length` tokens: the first stays, the others become its overflow. Throws
// UsageError if a window could not go on because `stride` is not below its length.
void truncate(Encoding& encoding, size_t max_length, size_t stride, TokenSide direction);

// Cuts the text and its pair to `max_length` tokens together. Throws UsageError where the strategy
// cannot do that.
void truncate_pair(Encoding& first, Encoding* second, size_t max_length,
                   const TruncationOptions& options);

// Appends `second`; every window of the one is joined with every window of the other. Throws
// DataError if those are too many.
void append(Encoding& first, Encoding second);

// Room for `size` tokens in all lists.
void reserve(Encoding& encoding, size_t size);
// Appends a token that stands for no text.
void append_special(Encoding& encoding, const std::string& token, int64_t id, int64_t type_id);

void pad(Encoding& encoding, size_t length, const PaddingOptions& options);
// All to the length of the longest, or to the one that is asked for.
void pad_together(std::span<Encoding> encodings, const PaddingOptions& options);

}  // namespace accelerate::tokenizers
