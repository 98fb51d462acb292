// The files of a tokenizer's folder.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "accelerate/transformers/pretrained_tokenizer.h"

namespace accelerate::transformers {

struct PretrainedTokenizer::Files {
  // tokenizer.json, or what it would say where there are only older files.
  std::string tokenizer{};
  nlohmann::json config = nlohmann::json::object();  // tokenizer_config.json
  nlohmann::json special = nlohmann::json();         // special_tokens_map.json; null: there is none
  nlohmann::json model = nlohmann::json();           // config.json of the model; null as well
  std::filesystem::path folder{};
  // The others, as they are: vocabularies, templates.
  std::map<std::string, std::string> others{};

  // Throws DataError for a file that cannot be read or is not valid JSON.
  static std::shared_ptr<const Files> read(const std::filesystem::path& folder);
};

// Settings of tokenizer_config.json that from_pretrained() reads and save_pretrained() writes.
struct SpecialTokenName {
  const char* key;  // "pad_token"
  std::optional<std::string> SpecialTokens::*token;
};
inline constexpr SpecialTokenName kSpecialTokenNames[] = {
    {"bos_token", &SpecialTokens::bos},  {"eos_token", &SpecialTokens::eos},
    {"unk_token", &SpecialTokens::unk},  {"sep_token", &SpecialTokens::sep},
    {"pad_token", &SpecialTokens::pad},  {"cls_token", &SpecialTokens::cls},
    {"mask_token", &SpecialTokens::mask}};

}  // namespace accelerate::transformers
