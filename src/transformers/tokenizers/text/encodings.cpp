#include "transformers/tokenizers/text/encodings.h"

#include <algorithm>

#include "accelerate/errors.h"

namespace accelerate::tokenizers {
namespace {

// A text and its pair have as many windows as the product of theirs.
constexpr size_t kMostWindows = 1 << 20;

// Calls visit(list of `a`, the same list of `b`) for each list of an encoding.
template <typename A, typename B, typename Visit>
void for_each_list(A& a, B& b, Visit visit) {
  visit(a.ids, b.ids);
  visit(a.type_ids, b.type_ids);
  visit(a.attention_mask, b.attention_mask);
  visit(a.special_tokens_mask, b.special_tokens_mask);
  visit(a.tokens, b.tokens);
  visit(a.offsets, b.offsets);
  visit(a.word_ids, b.word_ids);
  visit(a.sequence_ids, b.sequence_ids);
}

Encoding window(const Encoding& encoding, size_t begin, size_t end) {
  Encoding result;
  for_each_list(result, encoding, [&](auto& part, const auto& whole) {
    part.assign(whole.begin() + static_cast<std::ptrdiff_t>(begin),
                whole.begin() + static_cast<std::ptrdiff_t>(end));
  });
  return result;
}

void append_lists(Encoding& first, Encoding second) {
  for_each_list(first, second, [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  });
}

struct Window {
  size_t begin = 0;
  size_t end = 0;
};

std::vector<Window> windows_of(size_t size, size_t length, size_t step, TokenSide direction) {
  std::vector<Window> windows;
  if (direction == TokenSide::kRight) {
    for (size_t begin = 0;; begin += step) {
      windows.push_back({begin, std::min(begin + length, size)});
      if (windows.back().end == size) return windows;
    }
  }
  for (size_t end = size;; end -= step) {
    windows.push_back({end > length ? end - length : 0, end});
    if (windows.back().begin == 0) return windows;
  }
}

[[noreturn]] void refuse_truncation(const std::string& why) {
  throw UsageError({.what = "the text cannot be truncated: " + why, .where = "truncation"});
}

}  // namespace

void truncate(Encoding& encoding, size_t max_length, size_t stride, TokenSide direction) {
  if (max_length >= encoding.size()) return;
  if (max_length == 0) {
    Encoding all = std::move(encoding);
    encoding = {};
    encoding.overflowing.push_back(std::move(all));
    return;
  }
  if (stride >= max_length) {
    refuse_truncation("a stride of " + std::to_string(stride) + " is not below the " +
                      std::to_string(max_length) + " tokens of a window without special tokens");
  }
  const auto windows = windows_of(encoding.size(), max_length, max_length - stride, direction);
  Encoding first = window(encoding, windows[0].begin, windows[0].end);
  for (size_t i = 1; i < windows.size(); ++i) {
    first.overflowing.push_back(window(encoding, windows[i].begin, windows[i].end));
  }
  encoding = std::move(first);
}

void truncate_pair(Encoding& first, Encoding* second, size_t max_length,
                   const TruncationOptions& options) {
  const auto stride = static_cast<size_t>(options.stride);
  const auto cut = [&](Encoding& encoding, size_t length) {
    truncate(encoding, length, stride, options.direction);
  };
  if (max_length == 0) {
    cut(first, 0);
    if (second != nullptr) cut(*second, 0);
    return;
  }
  const size_t total = first.size() + (second == nullptr ? 0 : second->size());
  if (total <= max_length) return;

  if (options.strategy != TruncationStrategy::kLongestFirst) {
    Encoding* target = options.strategy == TruncationStrategy::kOnlyFirst ? &first : second;
    if (target == nullptr) refuse_truncation("there is no second text to take tokens from");
    if (target->size() <= total - max_length) {
      refuse_truncation("the one to be cut has too few tokens for a length of " +
                        std::to_string(options.max_length));
    }
    return cut(*target, target->size() - (total - max_length));
  }
  if (second == nullptr) return cut(first, max_length);
  // The shorter one stays whole if the longer can give enough; else each gets half.
  size_t shorter = std::min(first.size(), second->size());
  size_t longer = shorter > max_length ? shorter : std::max(shorter, max_length - shorter);
  if (shorter + longer > max_length) {
    shorter = max_length / 2;
    longer = shorter + max_length % 2;
  }
  const bool swapped = first.size() > second->size();
  cut(first, swapped ? longer : shorter);
  cut(*second, swapped ? shorter : longer);
}

void append(Encoding& first, Encoding second) {
  if (first.ids.capacity() == 0 && first.overflowing.empty()) {
    first = std::move(second);
    return;
  }
  if (first.overflowing.empty() && second.overflowing.empty()) {
    return append_lists(first, std::move(second));
  }
  const size_t windows = (first.overflowing.size() + 1) * (second.overflowing.size() + 1);
  if (windows > kMostWindows) {
    throw DataError({.what = "the windows of a text and its pair are too many together: " +
                             std::to_string(windows),
                     .hint = "truncate only one of the two, or allow a larger max_length"});
  }
  const std::vector<Encoding> more = std::exchange(second.overflowing, {});
  std::vector<Encoding> overflowing;
  overflowing.reserve(windows - 1);
  const auto join = [&](const Encoding& a, const Encoding& b) {
    overflowing.push_back(a);
    append_lists(overflowing.back(), b);
  };
  const std::vector<Encoding> own = std::exchange(first.overflowing, {});
  for (const Encoding& window : own) {
    join(window, second);
    for (const Encoding& other : more) join(window, other);
  }
  for (const Encoding& other : more) join(first, other);
  append_lists(first, std::move(second));
  first.overflowing = std::move(overflowing);
}

void reserve(Encoding& encoding, size_t size) {
  for_each_list(encoding, encoding, [size](auto& list, auto&) { list.reserve(size); });
}

void append_special(Encoding& encoding, const std::string& token, int64_t id, int64_t type_id) {
  encoding.ids.push_back(id);
  encoding.type_ids.push_back(type_id);
  encoding.attention_mask.push_back(1);
  encoding.special_tokens_mask.push_back(1);
  encoding.tokens.push_back(token);
  encoding.offsets.emplace_back();
  encoding.word_ids.push_back(-1);
  encoding.sequence_ids.push_back(-1);
}

void pad(Encoding& encoding, size_t length, const PaddingOptions& options) {
  for (Encoding& window : encoding.overflowing) pad(window, length, options);
  if (encoding.size() >= length) return;
  const size_t missing = length - encoding.size();
  const auto fill = [&](auto& list, const auto& value) {
    list.insert(options.direction == TokenSide::kLeft ? list.begin() : list.end(), missing, value);
  };
  fill(encoding.type_ids, options.pad_type_id);
  fill(encoding.attention_mask, int64_t{0});
  fill(encoding.special_tokens_mask, int64_t{1});
  fill(encoding.tokens, options.pad_token);
  fill(encoding.offsets, TokenOffsets{});
  fill(encoding.word_ids, int64_t{-1});
  fill(encoding.sequence_ids, int64_t{-1});
  fill(encoding.ids, options.pad_id);
}

void pad_together(std::span<Encoding> encodings, const PaddingOptions& options) {
  size_t length = 0;
  if (options.length) {
    length = static_cast<size_t>(*options.length);
  } else {
    for (const Encoding& encoding : encodings) length = std::max(length, encoding.size());
  }
  const auto multiple = static_cast<size_t>(options.pad_to_multiple_of);
  if (multiple > 0 && length % multiple != 0) length += multiple - length % multiple;
  for (Encoding& encoding : encodings) pad(encoding, length, options);
}

}  // namespace accelerate::tokenizers
