// The names that settings have in all models beside those in their files.
#pragma once

#include <string_view>

namespace accelerate::model_config {

// The name in files of this type of model: "n_embd" for "hidden_size" of "gpt2". `key` itself where
// there is no other.
std::string_view own_setting_name(std::string_view model_type, std::string_view key);

}  // namespace accelerate::model_config
