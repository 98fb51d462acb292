#include "tokenizers/recorded_cases.h"

#include <stdexcept>
#include <vector>

namespace accelerate::test {
namespace {

using nlohmann::json;

TokenSide side_of(const std::string& text) {
  if (text == "left") return TokenSide::kLeft;
  if (text == "right") return TokenSide::kRight;
  throw std::runtime_error("no side: " + text);
}

TruncationStrategy strategy_of(const std::string& text) {
  if (text == "longest_first") return TruncationStrategy::kLongestFirst;
  if (text == "only_first") return TruncationStrategy::kOnlyFirst;
  if (text == "only_second") return TruncationStrategy::kOnlySecond;
  throw std::runtime_error("no strategy: " + text);
}

TruncationOptions truncation_of(const json& recorded) {
  TruncationOptions options;
  for (const auto& [name, value] : recorded.items()) {
    if (name == "max_length") {
      options.max_length = value;
    } else if (name == "stride") {
      options.stride = value;
    } else if (name == "strategy") {
      options.strategy = strategy_of(value);
    } else if (name == "direction") {
      options.direction = side_of(value);
    } else {
      throw std::runtime_error("no setting of truncation: " + name);
    }
  }
  return options;
}

PaddingOptions padding_of(const json& recorded) {
  PaddingOptions options;
  for (const auto& [name, value] : recorded.items()) {
    if (value.is_null()) continue;
    if (name == "length") {
      options.length = value.get<int64_t>();
    } else if (name == "direction") {
      options.direction = side_of(value);
    } else if (name == "pad_to_multiple_of") {
      options.pad_to_multiple_of = value;
    } else if (name == "pad_id") {
      options.pad_id = value;
    } else if (name == "pad_type_id") {
      options.pad_type_id = value;
    } else if (name == "pad_token") {
      options.pad_token = value;
    } else {
      throw std::runtime_error("no setting of padding: " + name);
    }
  }
  return options;
}

json offsets_json(const Encoding& encoding) {
  json list = json::array();
  for (const TokenOffsets& offsets : encoding.offsets) list.push_back({offsets.begin, offsets.end});
  return list;
}

}  // namespace

EncodeOptions options_of(const json& recorded) {
  EncodeOptions options{.add_special_tokens = recorded.value("add_special_tokens", true)};
  if (recorded.contains("truncation")) options.truncation = truncation_of(recorded["truncation"]);
  if (recorded.contains("padding")) options.padding = padding_of(recorded["padding"]);
  return options;
}

std::string difference(const Encoding& encoding, const json& expected, Record record) {
  std::string result;
  const auto compare = [&](const char* name, const json& actual, const json& missing) {
    const bool given = expected.contains(name);
    if (!given && (record == Record::kPart || missing.is_null())) return;
    const json& wanted = given ? expected[name] : missing;
    if (actual == wanted) return;
    result += std::string("  ") + name + "\n    is     " + actual.dump() + "\n    wanted " +
              wanted.dump() + '\n';
  };
  const size_t size = encoding.size();
  const std::vector<int64_t> zeros(size, 0);
  compare("ids", encoding.ids, nullptr);
  compare("tokens", encoding.tokens, nullptr);
  compare("offsets", offsets_json(encoding), nullptr);
  compare("type_ids", encoding.type_ids, zeros);
  compare("attention_mask", encoding.attention_mask, std::vector<int64_t>(size, 1));
  compare("special_tokens_mask", encoding.special_tokens_mask, zeros);
  compare("word_ids", encoding.word_ids, nullptr);  // -1 where the library says None

  const json windows = expected.value("overflowing", json::array());
  if (windows.size() != encoding.overflowing.size()) {
    return result + "  " + std::to_string(encoding.overflowing.size()) + " windows, wanted " +
           std::to_string(windows.size()) + '\n';
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    // A bare list is the ids.
    const json window = windows[i].is_array() ? json{{"ids", windows[i]}} : windows[i];
    const std::string inside = difference(encoding.overflowing[i], window, Record::kPart);
    if (!inside.empty()) result += "  window " + std::to_string(i) + '\n' + inside;
  }
  return result;
}

}  // namespace accelerate::test
