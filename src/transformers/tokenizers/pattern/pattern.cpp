#include "transformers/tokenizers/pattern/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "transformers/tokenizers/pattern/pattern_syntax.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

constexpr size_t kLongestPattern = 1 << 16;
// Patterns come from files of anybody: one that explores too much is stopped.
constexpr uint32_t kMatchLimit = 2'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct Pattern::Compiled {
  Code code;
  MatchContext limits;
  bool jit = false;
};

Pattern::Pattern(std::string source, const std::string& where) : source_(std::move(source)) {
  if (source_.size() > kLongestPattern) {
    throw DataError({.what = "a pattern is longer than 65536 bytes", .where = where});
  }
  const CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE position = 0;
  auto compiled = std::make_shared<Compiled>();
  // A line has an end wherever there is one, as in Ruby. The text is valid UTF-8 by then.
  compiled->code.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(source_.data()), source_.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C,
      &error, &position, context.get()));
  if (!compiled->code) {
    throw DataError({.what = "the pattern " + in_quotes(source_) + " cannot be used: " +
                             message_of(error) + " at byte " + std::to_string(position),
                     .where = where});
  }
  compiled->limits.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(compiled->limits.get(), kMatchLimit);
  pcre2_set_heap_limit(compiled->limits.get(), kHeapLimitKib);
  compiled->jit = pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE) == 0;
  compiled_ = std::move(compiled);
}

Pattern Pattern::expression(std::string_view expression, const std::string& where) {
  if (find_invalid_utf8(expression) != std::string_view::npos) {
    throw DataError({.what = "a pattern is not valid UTF-8", .where = where});
  }
  return {to_pcre2(expression, where), where};
}

Pattern Pattern::literal(std::string_view text, const std::string& where) {
  return {quoted_pattern(text), where};
}

void Pattern::find_all(std::string_view text, std::vector<Span>& matches) const {
  // A search needs a place for its result; each thread keeps one for all patterns.
  thread_local const MatchData found(pcre2_match_data_create(1, nullptr));
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  matches.clear();
  size_t from = 0;
  size_t last_end = SIZE_MAX;
  while (from <= text.size()) {
    int count = PCRE2_ERROR_JIT_STACKLIMIT;
    if (compiled_->jit) {
      count = pcre2_jit_match(compiled_->code.get(), subject, text.size(), from, 0, found.get(),
                              compiled_->limits.get());
    }
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count = pcre2_match(compiled_->code.get(), subject, text.size(), from,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, found.get(), compiled_->limits.get());
    }
    if (count == PCRE2_ERROR_NOMATCH) return;
    if (count < 0) {
      throw DataError(
          {.what = "the pattern " + in_quotes(source_) + " gave up: " + message_of(count),
           .hint = "split the text into shorter ones"});
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(found.get());
    const size_t begin = bounds[0];
    const size_t end = bounds[1];
    // \K may put the beginning behind the end, or both before where the search began.
    if (begin > end || begin < from) {
      throw DataError({.what = "the pattern " + in_quotes(source_) +
                               " moves its matches, which cannot be used"});
    }
    if (begin == end && end == last_end) {
      from += from < text.size() ? utf8_length(text[from]) : 1;
      continue;
    }
    matches.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
    from = end;
    last_end = end;
  }
}

}  // namespace accelerate::tokenizers
