// Tokenizers from before tokenizer.json: a vocabulary and what the kind of model implies.
#include <sstream>

#include "accelerate/errors.h"
#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/json/json_reading.h"
#include "transformers/tokenizers/loading.h"
#include "transformers/tokenizers/text/utf8.h"

namespace accelerate::tokenizers {
namespace {

using nlohmann::json;

std::vector<std::string> lines_of(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  if (find_invalid_utf8(text) != std::string::npos) {
    throw DataError({.what = "the file is not valid UTF-8", .where = file.string()});
  }
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

json parsed_file(const std::filesystem::path& file) {
  return parse_json(read_text_file(file), file.string());
}

// tokenizer_config.json says how the vocabulary is meant; a folder need not have one.
bool setting(const std::filesystem::path& folder, const char* name, bool missing) {
  const std::filesystem::path file = folder / "tokenizer_config.json";
  if (!std::filesystem::exists(file)) return missing;
  const json config = parsed_file(file);
  return JsonFields(config, file.string()).flag_or(name, missing);
}

json added_token(const std::string& content, const json& id, bool lstrip) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", lstrip},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

json added_tokens(const json& vocabulary, const std::vector<std::string>& names) {
  json tokens = json::array();
  for (const std::string& name : names) {
    const auto id = vocabulary.find(name);
    if (id != vocabulary.end()) tokens.push_back(added_token(name, *id, name == "<mask>"));
  }
  return tokens;
}

json id_in(const json& vocabulary, const std::string& token, const std::filesystem::path& file) {
  const auto id = vocabulary.find(token);
  if (id == vocabulary.end()) {
    throw DataError({.what = "the vocabulary has no " + token, .where = file.string()});
  }
  return *id;
}

// As BERT has it.
json word_piece(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "vocab.txt";
  json vocabulary = json::object();
  size_t number = 0;
  for (std::string line : lines_of(file)) {
    line.erase(line.find_last_not_of(" \t\n\v\f\r") + 1);
    vocabulary[line] = number++;
  }
  const json cls = id_in(vocabulary, "[CLS]", file);
  const json sep = id_in(vocabulary, "[SEP]", file);
  json result;
  result["added_tokens"] = added_tokens(vocabulary, {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"});
  result["normalizer"] = {{"type", "BertNormalizer"},
                          {"clean_text", true},
                          {"handle_chinese_chars", setting(folder, "tokenize_chinese_chars", true)},
                          {"strip_accents", nullptr},
                          {"lowercase", setting(folder, "do_lower_case", true)}};
  result["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
  result["post_processor"] = {
      {"type", "BertProcessing"}, {"sep", {"[SEP]", sep}}, {"cls", {"[CLS]", cls}}};
  result["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  result["model"] = {{"type", "WordPiece"},
                     {"unk_token", "[UNK]"},
                     {"continuing_subword_prefix", "##"},
                     {"max_input_chars_per_word", 100},
                     {"vocab", std::move(vocabulary)}};
  return result;
}

// As GPT-2 has it or, with <s> and </s> in the vocabulary, as RoBERTa.
json byte_level_bpe(const std::filesystem::path& folder) {
  json vocabulary = parsed_file(folder / "vocab.json");
  json merges = json::array();
  for (const std::string& line : lines_of(folder / "merges.txt")) {
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  }
  const bool prefix_space = setting(folder, "add_prefix_space", false);
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", prefix_space},
                           {"trim_offsets", false},
                           {"use_regex", true}};
  json result;
  result["added_tokens"] =
      added_tokens(vocabulary, {"<|endoftext|>", "<s>", "<pad>", "</s>", "<unk>", "<mask>"});
  result["pre_tokenizer"] = byte_level;
  result["post_processor"] = byte_level;
  if (vocabulary.contains("<s>") && vocabulary.contains("</s>")) {
    result["post_processor"] = {{"type", "RobertaProcessing"},
                                {"sep", {"</s>", vocabulary["</s>"]}},
                                {"cls", {"<s>", vocabulary["<s>"]}},
                                {"trim_offsets", true},
                                {"add_prefix_space", prefix_space}};
  }
  result["decoder"] = byte_level;
  result["model"] = {
      {"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", std::move(merges)}};
  return result;
}

}  // namespace

std::optional<json> json_of_vocabulary_files(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "vocab.txt")) return word_piece(folder);
  if (std::filesystem::exists(folder / "vocab.json") &&
      std::filesystem::exists(folder / "merges.txt")) {
    return byte_level_bpe(folder);
  }
  return std::nullopt;
}

}  // namespace accelerate::tokenizers
