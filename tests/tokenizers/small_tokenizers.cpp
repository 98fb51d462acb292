#include "tokenizers/small_tokenizers.h"

namespace accelerate::test {
namespace {

using nlohmann::json;

std::string utf8(unsigned character) {
  if (character < 0x80) return {static_cast<char>(character)};
  return {static_cast<char>(0xc0 | character >> 6), static_cast<char>(0x80 | (character & 0x3f))};
}

}  // namespace

json word_level_json(const json& parts) {
  json result = {{"version", "1.0"},
                 {"added_tokens", json::array()},
                 {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                 {"model",
                  {{"type", "WordLevel"},
                   {"unk_token", "?"},
                   {"vocab",
                    {{"?", 0},
                     {"[CLS]", 1},
                     {"[SEP]", 2},
                     {"one", 3},
                     {"two", 4},
                     {"three", 5},
                     {"four", 6},
                     {"five", 7}}}}}};
  result.update(parts);
  return result;
}

json byte_level_json() {
  json vocabulary;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    vocabulary[utf8(visible ? byte : next++)] = byte;
  }
  vocabulary.update({{"he", 256}, {"ll", 257}, {"hell", 258}});
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", json::array()},
          {"pre_tokenizer", byte_level},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocabulary},
            {"merges", {"h e", "l l", json::array({"he", "ll"})}}}}};
}

json bert_processing() {
  return {{"type", "BertProcessing"}, {"sep", {"[SEP]", 2}}, {"cls", {"[CLS]", 1}}};
}

}  // namespace accelerate::test
