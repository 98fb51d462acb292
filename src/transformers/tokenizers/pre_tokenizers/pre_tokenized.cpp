#include "transformers/tokenizers/pre_tokenizers/pre_tokenized.h"

#include <algorithm>

namespace accelerate::tokenizers {
namespace {

// Joins neighbours where join(previous is a delimiter, this one is) says so.
template <typename Join>
void join_neighbours(std::vector<Stretch>& stretches, Join join) {
  size_t kept = 0;
  bool previous = false;
  for (size_t i = 0; i < stretches.size(); ++i) {
    const Stretch stretch = stretches[i];
    if (kept > 0 && join(previous, stretch.delimiter)) {
      Span& last = stretches[kept - 1].span;
      last.begin = std::min(last.begin, stretch.span.begin);
      last.end = std::max(last.end, stretch.span.end);
    } else {
      stretches[kept++] = stretch;
    }
    previous = stretch.delimiter;
  }
  stretches.resize(kept);
}

}  // namespace

void append_splits(std::vector<Stretch>& stretches, SplitBehavior behavior, uint32_t offset,
                   std::vector<Span>& splits) {
  const auto first_of_delimiters = [](bool previous, bool delimiter) {
    return delimiter && !previous;
  };
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(stretches, [](const Stretch& stretch) { return stretch.delimiter; });
      break;
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kMergedWithPrevious:
      join_neighbours(stretches, first_of_delimiters);
      break;
    case SplitBehavior::kMergedWithNext:
      std::ranges::reverse(stretches);
      join_neighbours(stretches, first_of_delimiters);
      std::ranges::reverse(stretches);
      break;
    case SplitBehavior::kContiguous:
      join_neighbours(stretches,
                      [](bool previous, bool delimiter) { return previous == delimiter; });
      break;
  }
  for (const Stretch& stretch : stretches) {
    if (stretch.span.size() == 0) continue;
    splits.push_back({offset + stretch.span.begin, offset + stretch.span.end});
  }
}

void stretches_of(std::string_view text, const std::vector<Span>& matches, bool inverted,
                  std::vector<Stretch>& stretches) {
  uint32_t done = 0;
  for (const Span match : matches) {
    if (match.begin != done) stretches.push_back({{done, match.begin}, inverted});
    stretches.push_back({match, !inverted});
    done = match.end;
  }
  const auto size = static_cast<uint32_t>(text.size());
  if (done != size) stretches.push_back({{done, size}, inverted});
}

}  // namespace accelerate::tokenizers
