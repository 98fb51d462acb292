#include <algorithm>
#include <set>

#include "accelerate/errors.h"
#include "accelerate/transformers/pretrained.h"
#include "transformers/text/checkpoint_files.h"
#include "transformers/text/tokenizer_files.h"
#include "transformers/text/tokenizer_kinds.h"
#include "transformers/tokenizers/json/json_fields.h"
#include "transformers/tokenizers/json/json_reading.h"
#include "transformers/tokenizers/loading.h"

namespace accelerate::transformers {
namespace {

using nlohmann::json;
using tokenizers::JsonFields;

bool is_empty_text(const json& value) {
  return value.is_string() && value.get_ref<const std::string&>().empty();
}

// What a token is written as: its text, or an object with that and how it is looked for.
AddedToken read_token(const json& value, const std::string& where) {
  if (is_empty_text(value) ||
      (value.is_object() && is_empty_text(value.value("content", json())))) {
    throw DataError({.what = "a token without a text", .where = where});
  }
  if (value.is_string()) {
    return {.content = value.get<std::string>(), .normalized = false, .special = true};
  }
  const JsonFields fields(value, where);
  return {.content = fields.text("content"),
          .single_word = fields.flag_or("single_word", false),
          .lstrip = fields.flag_or("lstrip", false),
          .rstrip = fields.flag_or("rstrip", false),
          .normalized = fields.flag_or("normalized", false),
          .special = true};
}

TokenSide read_side(const JsonFields& fields, const char* name, TokenSide missing) {
  const std::string side = fields.text_or(name, missing == TokenSide::kLeft ? "left" : "right");
  if (side != "left" && side != "right") fields.refuse(name, "left or right");
  return side == "left" ? TokenSide::kLeft : TokenSide::kRight;
}

// Files say 1e30, as a whole number, where there is no limit.
std::optional<int64_t> read_max_length(const JsonFields& fields) {
  constexpr double kNoLimit = 1e15;
  for (const char* name : {"model_max_length", "max_len"}) {
    const json* value = fields.find(name);
    if (value == nullptr) continue;
    if (!value->is_number()) fields.refuse(name, "a number");
    if (value->get<double>() >= kNoLimit) return std::nullopt;
    const int64_t length = fields.count(name);
    if (length == 0) fields.refuse(name, "a number above 0");
    return length;
  }
  return std::nullopt;
}

std::string text_field(const json& object, const char* name, const std::filesystem::path& file) {
  return object.is_null() ? "" : JsonFields(object, file.string()).text_or(name, "");
}

}  // namespace

std::shared_ptr<const PretrainedTokenizer::Files> PretrainedTokenizer::Files::read(
    const std::filesystem::path& folder) {
  auto files = std::make_shared<Files>();
  files->folder = folder;
  const auto parse = [&](const char* name, json& object) {
    const auto text = read_checkpoint_file(folder, name, kMostBytesOfSettings);
    if (!text) return;
    object = tokenizers::parse_json(*text, (folder / name).string());
    if (!object.is_object()) {
      throw DataError({.what = "an object was expected", .where = (folder / name).string()});
    }
  };
  parse("tokenizer_config.json", files->config);
  parse("special_tokens_map.json", files->special);
  parse("config.json", files->model);
  for (const char* name :
       {"vocab.txt", "vocab.json", "merges.txt", "added_tokens.json", "spiece.model",
        "sentencepiece.bpe.model", "tokenizer.model", "chat_template.jinja"}) {
    if (auto text = read_checkpoint_file(folder, name, kMostBytesOfVocabulary)) {
      files->others[name] = std::move(*text);
    }
  }
  auto tokenizer = read_checkpoint_file(folder, "tokenizer.json", kMostBytesOfVocabulary);
  if (!tokenizer) {
    // Of files that were just looked at.
    const auto made = tokenizers::json_of_vocabulary_files(folder);
    // Says what is missing.
    tokenizer = made ? made->dump() : tokenizers::read_text_file(folder / "tokenizer.json");
  }
  files->tokenizer = std::move(*tokenizer);
  return files;
}

// Has access to what a tokenizer is made of.
struct PretrainedTokenizer::Loader {
  explicit Loader(std::shared_ptr<const Files> files)
      : files(*files),
        place((files->folder / "tokenizer_config.json").string()),
        config(files->config, place),
        result(
            Tokenizer::from_json(files->tokenizer, (files->folder / "tokenizer.json").string())) {
    result.files_ = std::move(files);
  }

  // In the files the map of special tokens goes before the settings, unless those list all added
  // tokens.
  const json* find_token(const char* key) const {
    const bool legacy = files.special.is_object() && config.find("added_tokens_decoder") == nullptr;
    if (legacy) {
      const auto found = files.special.find(key);
      if (found != files.special.end() && !found->is_null()) return &*found;
    }
    return config.find(key);
  }

  // A token that is special but not yet one of the added ones becomes one.
  void note(AddedToken token, std::vector<AddedToken>& fresh) {
    const auto same = [&](const AddedToken& other) { return other.content == token.content; };
    const auto& added = result.tokenizer_.added_tokens();
    if (std::any_of(added.begin(), added.end(), same)) return;
    if (std::any_of(fresh.begin(), fresh.end(), same)) return;
    fresh.push_back(std::move(token));
  }

  void read_special_tokens(const TokenizerKind* kind) {
    std::vector<AddedToken> fresh;
    if (const json* listed = config.find("added_tokens_decoder")) read_decoder(*listed, fresh);
    for (const SpecialTokenName& name : kSpecialTokenNames) {
      if (const json* value = find_token(name.key)) {
        AddedToken token = read_token(*value, place + '.' + name.key);
        result.special_.*name.token = token.content;
        note(std::move(token), fresh);
      } else if (kind != nullptr && kind->tokens.*name.token && !config_has(name.key)) {
        const std::string& implied = *(kind->tokens.*name.token);
        if (!result.tokenizer_.token_to_id(implied)) continue;
        result.special_.*name.token = implied;
        note({.content = implied, .normalized = false, .special = true}, fresh);
      }
    }
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
      const json* list = find_token(key);
      if (list == nullptr || !list->is_array()) continue;
      for (const json& value : *list) {
        AddedToken token = read_token(value, place + '.' + key);
        result.special_.additional.push_back(token.content);
        note(std::move(token), fresh);
      }
    }
    if (!fresh.empty()) result.add_tokens(fresh);
  }

  // Whether a key is there, if only to say that there is no such token.
  bool config_has(const char* key) const { return files.config.contains(key); }

  // {"0": {"content": "[PAD]", ...}, ...}
  void read_decoder(const json& listed, std::vector<AddedToken>& fresh) {
    const std::string where = place + ".added_tokens_decoder";
    const JsonFields fields(listed, where);
    std::map<int64_t, AddedToken> by_id;
    for (const auto& [id, value] : listed.items()) {
      AddedToken token = read_token(value, where + '.' + id);
      token.special = JsonFields(value, where + '.' + id).flag_or("special", false);
      if (id.empty() || id.size() > 10 || id.find_first_not_of("0123456789") != std::string::npos) {
        fields.refuse(id, "an id as its name");
      }
      by_id.emplace(std::stoll(id), std::move(token));
    }
    for (auto& [id, token] : by_id) note(std::move(token), fresh);
  }

  void read_settings(const TokenizerKind* kind) {
    Tokenizer& tokenizer = result.tokenizer_;
    const auto& padding = tokenizer.padding();
    const auto& truncation = tokenizer.truncation();
    TokenSide side = kind != nullptr ? kind->padding_side : TokenSide::kRight;
    if (padding) side = padding->direction;
    result.padding_side_ = read_side(config, "padding_side", side);
    result.truncation_side_ = read_side(config, "truncation_side",
                                        truncation ? truncation->direction : TokenSide::kRight);
    result.model_max_length_ = read_max_length(config);
    result.pad_token_type_id_ =
        config.count_or("pad_token_type_id", padding ? padding->pad_type_id : 0);
    if (!result.special_.pad && padding && tokenizer.token_to_id(padding->pad_token)) {
      result.special_.pad = padding->pad_token;
    }
    result.has_token_type_ids_ = kind != nullptr && kind->has_token_type_ids;
    if (config.find("model_input_names") != nullptr) {
      const json& names = config.list("model_input_names");
      result.has_token_type_ids_ =
          std::find(names.begin(), names.end(), "token_type_ids") != names.end();
    }
    // Meant for words in pieces; it would take spaces from byte-level texts that belong there.
    result.cleans_up_spaces_ =
        config.flag_or("clean_up_tokenization_spaces", false) && tokenizer.model_type() != "BPE";
    tokenizer.set_padding(std::nullopt);
    tokenizer.set_truncation(std::nullopt);
  }

  PretrainedTokenizer load() {
    const std::filesystem::path model_file = files.folder / "config.json";
    std::string name = config.text_or("tokenizer_class", "");
    if (name.empty()) name = text_field(files.model, "tokenizer_class", model_file);
    const TokenizerKind* kind =
        find_tokenizer_kind(name, text_field(files.model, "model_type", model_file));
    read_special_tokens(kind);
    read_settings(kind);
    return std::move(result);
  }

  const Files& files;
  std::string place;
  JsonFields config;
  PretrainedTokenizer result;
};

PretrainedTokenizer PretrainedTokenizer::from_pretrained(const std::string& name_or_folder,
                                                         const std::string& revision) {
  return Loader(Files::read(find_pretrained(name_or_folder, revision))).load();
}

}  // namespace accelerate::transformers
