#include "transformers/tokenizers/decoders/decoders.h"

#include <array>
#include <optional>
#include <utility>

#include "accelerate/errors.h"
#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/pattern/pattern.h"
#include "transformers/tokenizers/pattern/pattern_field.h"
#include "transformers/tokenizers/pre_tokenizers/metaspace.h"
#include "transformers/tokenizers/text/byte_level.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

using Tokens = std::vector<std::string>;

// An empty `old` stands between all characters, and at both ends.
std::string replaced(std::string_view text, std::string_view old, std::string_view replacement) {
  std::string result;
  if (old.empty()) {
    for_each_char(text, [&](char32_t character, size_t) {
      result += replacement;
      append_utf8(result, character);
    });
    return result += replacement;
  }
  size_t done = 0;
  for (size_t at = text.find(old); at != std::string_view::npos; at = text.find(old, done)) {
    result.append(text, done, at - done);
    result += replacement;
    done = at + old.size();
  }
  return result.append(text, done);
}

// Takes back the spaces of English that splitting puts before signs and endings.
std::string tidied(std::string text) {
  constexpr std::array kRules{
      std::pair{" .", "."},     std::pair{" ?", "?"},           std::pair{" !", "!"},
      std::pair{" ,", ","},     std::pair{" ' ", "'"},          std::pair{" n't", "n't"},
      std::pair{" 'm", "'m"},   std::pair{" do not", " don't"}, std::pair{" 's", "'s"},
      std::pair{" 've", "'ve"}, std::pair{" 're", "'re"},
  };
  for (const auto& [old, replacement] : kRules) {
    if (text.find(old) != std::string::npos) text = replaced(text, old, replacement);
  }
  return text;
}

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

class WordPieceDecoder final : public Decoder {
 public:
  explicit WordPieceDecoder(const JsonFields& fields)
      : prefix_(fields.text("prefix")), cleanup_(fields.flag("cleanup")) {}

  Tokens decode(Tokens tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i > 0) token = token.starts_with(prefix_) ? token.substr(prefix_.size()) : ' ' + token;
      if (cleanup_) token = tidied(std::move(token));
    }
    return tokens;
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class ByteLevelDecoder final : public Decoder {
 public:
  Tokens decode(Tokens tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += bytes_of_chars(token).value_or(token);
    return {lossy_utf8(bytes)};
  }
};

class MetaspaceDecoder final : public Decoder {
 public:
  explicit MetaspaceDecoder(const JsonFields& fields)
      : settings_(read_metaspace(fields)), replacement_(utf8_of(settings_.replacement)) {}

  Tokens decode(Tokens tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool added = i == 0 && settings_.prepend != PrependScheme::kNever;
      tokens[i] = replaced(tokens[i], replacement_, added ? "" : " ");
    }
    return tokens;
  }

 private:
  Metaspace settings_;
  std::string replacement_;
};

// <0x41> is the byte 0x41. Bytes side by side that are not valid UTF-8 become one U+FFFD each.
class ByteFallbackDecoder final : public Decoder {
 public:
  Tokens decode(Tokens tokens) const override {
    Tokens result;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (find_invalid_utf8(bytes) == std::string_view::npos) {
        result.push_back(bytes);
      } else {
        result.insert(result.end(), bytes.size(), "\xef\xbf\xbd");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        bytes += *byte;
        continue;
      }
      flush();
      result.push_back(std::move(token));
    }
    flush();
    return result;
  }

 private:
  static std::optional<char> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) {
      return std::nullopt;
    }
    const auto digit = [](char c) {
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      return -1;
    };
    // A sign before one digit is read as a number too.
    const int high = token[3] == '+' ? 0 : digit(token[3]);
    const int low = digit(token[4]);
    if (high < 0 || low < 0) return std::nullopt;
    return static_cast<char>(high * 16 + low);
  }
};

class FuseDecoder final : public Decoder {
 public:
  Tokens decode(Tokens tokens) const override { return {joined(tokens)}; }
};

class StripDecoder final : public Decoder {
 public:
  explicit StripDecoder(const JsonFields& fields)
      : content_(utf8_of(fields.character("content"))),
        start_(fields.count("start")),
        stop_(fields.count("stop")) {}

  Tokens decode(Tokens tokens) const override {
    for (std::string& token : tokens) {
      const auto size = static_cast<int64_t>(token.size());
      std::string_view text = token;
      for (int64_t i = 0; i < start_ && text.starts_with(content_); ++i) {
        text.remove_prefix(content_.size());
      }
      const auto begin = size - static_cast<int64_t>(text.size());
      std::string_view all = token;
      for (int64_t i = 0; i < stop_; ++i) {
        if (all.empty()) refuse("has fewer characters than are to be taken from its end");
        if (!all.ends_with(content_)) break;
        all.remove_suffix(content_.size());
      }
      const auto end = static_cast<int64_t>(all.size());
      if (end < begin) refuse("is taken from both ends");
      token = token.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    }
    return tokens;
  }

 private:
  [[noreturn]] static void refuse(const std::string& why) {
    throw DataError({.what = "a token cannot be stripped: it " + why, .where = "decoder"});
  }

  std::string content_;
  int64_t start_;
  int64_t stop_;
};

class ReplaceDecoder final : public Decoder {
 public:
  explicit ReplaceDecoder(const JsonFields& fields)
      : pattern_(read_pattern(fields)), content_(fields.text("content")) {}

  Tokens decode(Tokens tokens) const override {
    std::vector<Span> matches;
    for (std::string& token : tokens) {
      if (token.empty()) continue;
      pattern_.find_all(token, matches);
      if (matches.empty()) continue;
      std::string result;
      size_t done = 0;
      for (const Span match : matches) {
        result.append(token, done, match.begin - done);
        result += content_;
        done = match.end;
      }
      token = result.append(token, done);
    }
    return tokens;
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class BpeDecoder final : public Decoder {
 public:
  explicit BpeDecoder(const JsonFields& fields) : suffix_(fields.text("suffix")) {}

  Tokens decode(Tokens tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replaced(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
    }
    return tokens;
  }

 private:
  std::string suffix_;
};

class CtcDecoder final : public Decoder {
 public:
  explicit CtcDecoder(const JsonFields& fields)
      : pad_(fields.text("pad_token")),
        delimiter_(fields.text("word_delimiter_token")),
        cleanup_(fields.flag("cleanup")) {}

  Tokens decode(Tokens tokens) const override {
    Tokens result;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i] == tokens[i - 1]) continue;
      std::string token = replaced(tokens[i], pad_, "");
      if (cleanup_) token = replaced(tidied(std::move(token)), delimiter_, " ");
      if (!token.empty()) result.push_back(std::move(token));
    }
    return result;
  }

 private:
  std::string pad_;
  std::string delimiter_;
  bool cleanup_;
};

class DecoderSequence final : public Decoder {
 public:
  DecoderSequence(const JsonFields& fields, int depth) {
    size_t number = 0;
    for (const nlohmann::json& part : fields.list("decoders")) {
      const std::string where = fields.place("decoders") + '[' + std::to_string(number++) + ']';
      parts_.push_back(make_decoder(part, where, depth + 1));
    }
  }

  Tokens decode(Tokens tokens) const override {
    for (const auto& part : parts_) tokens = part->decode(std::move(tokens));
    return tokens;
  }

 private:
  std::vector<std::unique_ptr<const Decoder>> parts_;
};

}  // namespace

std::unique_ptr<const Decoder> make_decoder(const nlohmann::json& json, const std::string& where,
                                            int depth) {
  check_depth(depth, where);
  const JsonFields fields(json, where);
  const std::string type = fields.type();
  if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(fields);
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(fields);
  if (type == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  if (type == "Fuse") return std::make_unique<FuseDecoder>();
  if (type == "Strip") return std::make_unique<StripDecoder>(fields);
  if (type == "Replace") return std::make_unique<ReplaceDecoder>(fields);
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(fields);
  if (type == "CTC") return std::make_unique<CtcDecoder>(fields);
  if (type == "Sequence") return std::make_unique<DecoderSequence>(fields, depth);
  refuse_type("decoder", fields);
}

}  // namespace accelerate::tokenizers
