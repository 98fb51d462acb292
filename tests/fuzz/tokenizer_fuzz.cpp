// A tokenizer.json is refused with a DataError, or it encodes any text or says why not, and what it
// makes fits together. The input is the file, a zero byte and the text.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/tokenizers.h"
#include "check.h"
#include "transformers/tokenizers/text/utf8.h"

namespace {

using accelerate::Encoding;
using accelerate::Tokenizer;

constexpr size_t kLongestText = 400;
constexpr int64_t kLongestPadding = 1000;

void check_message(const accelerate::Error& error) {
  FUZZ_CHECK(!error.message().empty() && error.message().size() < 800);
  for (const char c : error.message()) FUZZ_CHECK(static_cast<unsigned char>(c) >= ' ');
}

std::optional<Tokenizer> loaded(const std::string& json) {
  try {
    return Tokenizer::from_json(json, "file");
  } catch (const accelerate::DataError& error) {
    check_message(error);
    return std::nullopt;
  }
}

void check_encoding(const Encoding& encoding, int64_t chars) {
  const size_t size = encoding.size();
  FUZZ_CHECK(encoding.type_ids.size() == size && encoding.attention_mask.size() == size);
  FUZZ_CHECK(encoding.special_tokens_mask.size() == size && encoding.tokens.size() == size);
  FUZZ_CHECK(encoding.offsets.size() == size && encoding.word_ids.size() == size);
  FUZZ_CHECK(encoding.sequence_ids.size() == size);
  for (const std::string& token : encoding.tokens) {
    FUZZ_CHECK(accelerate::tokenizers::find_invalid_utf8(token) == std::string::npos);
  }
  for (const auto& offsets : encoding.offsets) {
    FUZZ_CHECK(offsets.begin >= 0 && offsets.begin <= offsets.end);
    // Tokens that a file puts in by itself may claim more than there is, but not without end.
    FUZZ_CHECK(offsets.end <= 8 * (chars + 1000));
  }
  for (const Encoding& window : encoding.overflowing) check_encoding(window, chars);
}

template <typename Work>
void allow_errors(Work work) {
  try {
    work();
  } catch (const accelerate::Error& error) {
    check_message(error);
  }
}

void check_text(Tokenizer& tokenizer, const std::string& text) {
  const auto chars = static_cast<int64_t>(text.size());
  allow_errors([&] {
    const Encoding encoding = tokenizer.encode(text);
    check_encoding(encoding, chars);
    const std::vector<accelerate::TextPair> texts{text, text};
    for (const Encoding& other : tokenizer.encode_batch(texts)) {
      FUZZ_CHECK(other.tokens == encoding.tokens && other.ids == encoding.ids);
    }
    const std::string decoded = tokenizer.decode(encoding.ids);
    FUZZ_CHECK(accelerate::tokenizers::find_invalid_utf8(decoded) == std::string::npos);
  });
  const accelerate::TruncationOptions truncation{.max_length = 9, .stride = 2};
  allow_errors([&] {
    check_encoding(
        tokenizer.encode(text, text.substr(0, text.find(' ')), {.truncation = truncation}), chars);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  auto tokenizer = loaded(input.substr(0, zero));
  if (!tokenizer || zero == std::string::npos) return 0;
  const auto& padding = tokenizer->padding();
  if (padding &&
      std::max(padding->length.value_or(0), padding->pad_to_multiple_of) > kLongestPadding) {
    tokenizer->set_padding(std::nullopt);
  }
  check_text(*tokenizer, input.substr(zero + 1, kLongestText));
  return 0;
}
