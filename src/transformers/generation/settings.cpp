#include "transformers/generation/settings.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "accelerate/errors.h"
#include "accelerate/log.h"

namespace accelerate::transformers {
namespace {

constexpr int64_t kDefaultNewTokens = 20;
constexpr int64_t kDefaultTopK = 50;

template <class Value>
[[noreturn]] void refuse(const char* name, Value value, const char* what,
                         const std::string& hint = {}) {
  std::ostringstream text;
  text << name << " is " << value << ", but " << what;
  throw UsageError({.what = text.str(), .where = "generate", .hint = hint});
}

std::optional<int64_t> configured_integer(const ModelConfig& config, const char* key) {
  return config.has(key) ? std::optional(config.integer(key)) : std::nullopt;
}

double number_of(const std::optional<double>& option, const ModelConfig& config, const char* key) {
  return option ? *option : config.number(key, 1.0);
}

// The length up to which the model knows positions; 0: not known.
int64_t known_positions(const ModelConfig& config) {
  return config.integer("max_position_embeddings", config.integer("n_positions", 0));
}

int64_t max_length_of(const PretrainedModel& model, const GenerationOptions& options,
                      int64_t prompt_length) {
  const ModelConfig& configured = model.generation_config();
  auto new_tokens = options.max_new_tokens;
  auto length = options.max_length;
  if (!new_tokens && !length) {
    new_tokens = configured_integer(configured, "max_new_tokens");
    length = configured_integer(configured, "max_length");
  }
  if (new_tokens) {
    if (*new_tokens <= 0) refuse("max_new_tokens", *new_tokens, "must be at least 1");
    return prompt_length + *new_tokens;
  }
  if (length) {
    if (*length <= prompt_length) {
      refuse("max_length", *length,
             "the prompt alone is as long as that: nothing would be generated",
             "set max_new_tokens instead, which does not count the prompt");
    }
    return *length;
  }
  const int64_t known = known_positions(model.config());
  const int64_t usual = prompt_length + kDefaultNewTokens;
  return known > prompt_length ? std::min(usual, known) : usual;
}

void check_tokens(const GenerationSettings& settings) {
  for (const int64_t token : settings.eos_token_ids) {
    if (token < 0) refuse("eos_token_ids", token, "tokens are not negative");
  }
  if (settings.pad_token_id && *settings.pad_token_id < 0) {
    refuse("pad_token_id", *settings.pad_token_id, "tokens are not negative");
  }
}

void check_sampling(const GenerationSettings& settings) {
  if (!(settings.repetition_penalty > 0)) {
    refuse("repetition_penalty", settings.repetition_penalty, "must be above 0");
  }
  if (!settings.do_sample) return;
  if (!(settings.temperature > 0) || !std::isfinite(settings.temperature)) {
    refuse("temperature", settings.temperature, "must be above 0",
           "leave do_sample out for the best token each time");
  }
  if (settings.top_k < 0) refuse("top_k", settings.top_k, "must be 0, for all tokens, or more");
  if (!(settings.top_p > 0) || settings.top_p > 1) {
    refuse("top_p", settings.top_p, "must be above 0 and at most 1");
  }
}

// Says what the model's own settings ask for and is not done here.
void warn_of_unknown_ways(const ModelConfig& configured) {
  if (configured.integer("num_beams", 1) > 1) {
    log(LogLevel::kWarning,
        "generate(): the model's generation_config asks for beam search, which is not "
        "offered: it goes on with one token at a time");
  }
  if (configured.integer("no_repeat_ngram_size", 0) > 0) {
    log(LogLevel::kWarning,
        "generate(): no_repeat_ngram_size of the model's generation_config is not "
        "followed");
  }
}

}  // namespace

GenerationSettings generation_settings(const PretrainedModel& model,
                                       const GenerationOptions& options, int64_t prompt_length) {
  if (!model.can_generate()) {
    throw UsageError({.what = model.architecture() + " cannot generate texts: it does not predict "
                                                     "the next token",
                      .where = "generate",
                      .hint = "load it by AutoModelForCausalLM or AutoModelForSeq2SeqLM"});
  }
  const ModelConfig& configured = model.generation_config();
  warn_of_unknown_ways(configured);
  GenerationSettings settings;
  settings.max_length = max_length_of(model, options, prompt_length);
  const auto least = options.min_new_tokens ? options.min_new_tokens
                                            : configured_integer(configured, "min_new_tokens");
  if (least && *least < 0) refuse("min_new_tokens", *least, "must be 0 or more");
  settings.min_length = least ? prompt_length + *least : configured.integer("min_length", 0);
  settings.do_sample = options.do_sample.value_or(configured.flag("do_sample", false));
  settings.temperature = number_of(options.temperature, configured, "temperature");
  settings.top_k = options.top_k ? *options.top_k : configured.integer("top_k", kDefaultTopK);
  settings.top_p = number_of(options.top_p, configured, "top_p");
  settings.repetition_penalty =
      number_of(options.repetition_penalty, configured, "repetition_penalty");
  settings.eos_token_ids =
      options.eos_token_ids ? *options.eos_token_ids : configured.integers("eos_token_id");
  settings.pad_token_id =
      options.pad_token_id ? options.pad_token_id : configured_integer(configured, "pad_token_id");
  if (!settings.pad_token_id && !settings.eos_token_ids.empty()) {
    settings.pad_token_id = settings.eos_token_ids.front();
  }
  settings.decoder_start_token_id =
      options.decoder_start_token_id
          ? options.decoder_start_token_id
          : configured_integer(configured, configured.has("decoder_start_token_id")
                                               ? "decoder_start_token_id"
                                               : "bos_token_id");
  check_tokens(settings);
  check_sampling(settings);
  return settings;
}

}  // namespace accelerate::transformers
