#include "transformers/pretrained/generation_settings.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <system_error>

#include "model_config/json_text.h"
#include "model_config/parse.h"

namespace accelerate::transformers {
namespace {

using nlohmann::json;

constexpr const char* kFileName = "generation_config.json";

// How texts are generated: of no meaning to the model itself.
constexpr std::array<std::string_view, 33> kOfGenerationAlone{"assistant_confidence_threshold",
                                                              "assistant_lookbehind",
                                                              "bad_words_ids",
                                                              "begin_suppress_tokens",
                                                              "diversity_penalty",
                                                              "do_sample",
                                                              "early_stopping",
                                                              "encoder_no_repeat_ngram_size",
                                                              "encoder_repetition_penalty",
                                                              "epsilon_cutoff",
                                                              "eta_cutoff",
                                                              "exponential_decay_length_penalty",
                                                              "forced_bos_token_id",
                                                              "forced_eos_token_id",
                                                              "length_penalty",
                                                              "max_length",
                                                              "min_length",
                                                              "no_repeat_ngram_size",
                                                              "num_assistant_tokens",
                                                              "num_assistant_tokens_schedule",
                                                              "num_beam_groups",
                                                              "num_beams",
                                                              "num_return_sequences",
                                                              "output_scores",
                                                              "remove_invalid_values",
                                                              "repetition_penalty",
                                                              "return_dict_in_generate",
                                                              "suppress_tokens",
                                                              "target_lookbehind",
                                                              "temperature",
                                                              "top_k",
                                                              "top_p",
                                                              "typical_p"};
// Settings of the model that generation needs too.
constexpr std::array<std::string_view, 11> kOfBoth{
    "bos_token_id",   "decoder_start_token_id", "eos_token_id",
    "max_new_tokens", "min_new_tokens",         "min_p",
    "pad_token_id",   "renormalize_logits",     "stop_strings",
    "use_cache",      "transformers_version"};

bool contains(const auto& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

ModelConfig read_generation_config(const std::filesystem::path& folder, const ModelConfig& config) {
  std::error_code error;
  if (std::filesystem::exists(folder / kFileName, error)) {
    return ModelConfig::from_file(folder / kFileName);
  }
  return generation_settings_of(config);
}

ModelConfig generation_settings_of(const ModelConfig& config) {
  const json all = model_config::parse_config(config.to_json(), config.name());
  json settings = json::object();
  settings["_from_model_config"] = true;
  for (const auto& [key, value] : all.items()) {
    if (value.is_null()) continue;
    if (contains(kOfGenerationAlone, key) || contains(kOfBoth, key)) settings[key] = value;
  }
  return ModelConfig::from_json(settings.dump(), config.name());
}

void remove_generation_settings(ModelConfig& config) {
  for (const std::string_view key : kOfGenerationAlone) config.remove(key);
}

}  // namespace accelerate::transformers
