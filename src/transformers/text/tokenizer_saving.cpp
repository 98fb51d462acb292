#include <algorithm>
#include <span>

#include "accelerate/errors.h"
#include "files/durable/replace_file.h"
#include "transformers/text/tokenizer_files.h"
#include "transformers/tokenizers/json/json_reading.h"

namespace accelerate::transformers {
namespace {

using nlohmann::json;

void write_file(const std::filesystem::path& file, const std::string& text) {
  files::replace_file(file,
                      [&](files::ByteSink& sink) { sink.write(std::as_bytes(std::span(text))); });
}

std::string indented(const json& object) { return object.dump(2) + '\n'; }

json to_json(const AddedToken& token, int64_t id) {
  return {{"id", id},
          {"content", token.content},
          {"single_word", token.single_word},
          {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},
          {"normalized", token.normalized},
          {"special", token.special}};
}

// A token of the files may be an object with more than its text: that stays while the text does.
void set_token(json& object, const char* key, const std::optional<std::string>& token) {
  const auto present = object.find(key);
  if (!token) {
    if (present != object.end()) object.erase(present);
    return;
  }
  if (present != object.end() && present->is_object() && present->value("content", "") == *token) {
    return;
  }
  object[key] = *token;
}

const char* side_name(TokenSide side) { return side == TokenSide::kLeft ? "left" : "right"; }

}  // namespace

void PretrainedTokenizer::save_pretrained(const std::filesystem::path& folder) const {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw CheckpointError(
        {.what = "the folder cannot be created: " + error.message(), .where = folder.string()});
  }
  std::string tokenizer = files_->tokenizer;
  if (!added_.empty()) {
    json document = tokenizers::parse_json(tokenizer, "tokenizer.json");
    json& list = document["added_tokens"];
    if (list.is_null()) list = json::array();
    for (const AddedToken& token : added_) {
      const auto id = tokenizer_.token_to_id(token.content);
      if (!id) continue;  // a token without a text, which is no token
      const auto same = std::find_if(list.begin(), list.end(), [&](const json& other) {
        return other.is_object() && other.value("content", "") == token.content;
      });
      if (same != list.end()) {
        *same = to_json(token, *id);
      } else {
        list.push_back(to_json(token, *id));
      }
    }
    tokenizer = indented(document);
  }
  write_file(folder / "tokenizer.json", tokenizer);

  json config = files_->config;
  config.erase("name_or_path");
  for (const SpecialTokenName& name : kSpecialTokenNames) {
    set_token(config, name.key, special_.*name.token);
  }
  config["padding_side"] = side_name(padding_side_);
  config["truncation_side"] = side_name(truncation_side_);
  if (model_max_length_) {
    config["model_max_length"] = *model_max_length_;
  } else {
    config.erase("max_len");
    if (config.contains("model_max_length") && config["model_max_length"].is_number_integer()) {
      config.erase("model_max_length");
    }
  }
  if (!config.contains("tokenizer_class")) {
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
    config["model_input_names"] = has_token_type_ids_
                                      ? json{"input_ids", "token_type_ids", "attention_mask"}
                                      : json{"input_ids", "attention_mask"};
  }
  write_file(folder / "tokenizer_config.json", indented(config));

  if (files_->special.is_object()) {
    json special = files_->special;
    for (const SpecialTokenName& name : kSpecialTokenNames) {
      set_token(special, name.key, special_.*name.token);
    }
    write_file(folder / "special_tokens_map.json", indented(special));
  }
  for (const auto& [name, text] : files_->others) write_file(folder / name, text);
}

}  // namespace accelerate::transformers
