// A tokenizer from the parts of its file.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "accelerate/tokenizers.h"

namespace accelerate::tokenizers {

// What a tokenizer.json would say for the files of an older model. Throws DataError for files that
// do not fit; nothing if the folder has none of them.
std::optional<nlohmann::json> json_of_vocabulary_files(const std::filesystem::path& folder);

// All of a file. Throws DataError if it cannot be read.
std::string read_text_file(const std::filesystem::path& file);

std::optional<TruncationOptions> read_truncation(const nlohmann::json& json,
                                                 const std::string& where);
std::optional<PaddingOptions> read_padding(const nlohmann::json& json, const std::string& where);
std::vector<AddedToken> read_added_tokens(const nlohmann::json& json, const std::string& where);

}  // namespace accelerate::tokenizers
