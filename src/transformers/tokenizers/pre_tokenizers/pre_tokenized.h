// A text on its way from normalizing to the model: cut into pieces, each of which becomes tokens by
// itself.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "transformers/tokenizers/text/aligned_text.h"

namespace accelerate::tokenizers {

// A run of the input: an added token that was found in it, or what lies between two of them.
struct Segment {
  AlignedText text{};
  // What is left to be made into tokens, in order; never empty pieces.
  std::vector<Span> splits{};
  std::optional<uint32_t> added_token{};
};

// What becomes of a delimiter: "the-final--countdown" split at "-" becomes
enum class SplitBehavior {
  kRemoved,             // the final countdown
  kIsolated,            // the - final - - countdown
  kMergedWithPrevious,  // the- final- - countdown
  kMergedWithNext,      // the -final - -countdown
  kContiguous,          // the - final -- countdown
};

// One stretch of a text and whether it is a delimiter. All stretches together are the whole text.
struct Stretch {
  Span span{};
  bool delimiter = false;
};

// Appends the pieces of `stretches` to `splits`, each moved by `offset`; empty ones are left out.
// Changes `stretches`.
void append_splits(std::vector<Stretch>& stretches, SplitBehavior behavior, uint32_t offset,
                   std::vector<Span>& splits);

// Splits all pieces of `segment` again: find(text of a piece, stretches) fills the empty
// `stretches`.
template <typename Find>
void split_again(Segment& segment, SplitBehavior behavior, Find find) {
  std::vector<Span> splits;
  splits.reserve(segment.splits.size() * 2);
  std::vector<Stretch> stretches;
  for (const Span split : segment.splits) {
    stretches.clear();
    find(segment.text.view(split), stretches);
    append_splits(stretches, behavior, split.begin, splits);
  }
  segment.splits = std::move(splits);
}

// Stretches of `text` between and under `matches`, which are in order; `inverted` takes what lies
// between the matches as delimiters.
void stretches_of(std::string_view text, const std::vector<Span>& matches, bool inverted,
                  std::vector<Stretch>& stretches);

}  // namespace accelerate::tokenizers
