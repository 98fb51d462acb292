#include "transformers/generation/settings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/log.h"

namespace accelerate::transformers {
namespace {

constexpr int64_t kDefaultNewTokens = 20;
constexpr int64_t kDefaultTopK = 50;
constexpr int64_t kMostLength = std::numeric_limits<int32_t>::max();

// A setting and whether the caller gave it: what is wrong with it is an error of the caller, or of
// the file.
template <class Value>
struct GenerationSetting {
  const char* name;
  Value value;
  bool given;
};

template <class Value>
[[noreturn]] void refuse(const GenerationSetting<Value>& setting, const ModelConfig& file,
                         const char* what, const std::string& hint = {}) {
  std::ostringstream text;
  if (setting.given) {
    text << setting.name << " is " << setting.value << ", but " << what;
    throw UsageError({.what = text.str(), .where = "generate", .hint = hint});
  }
  text << "'" << setting.name << "' in " << file.name() << " is " << setting.value << ", but "
       << what;
  throw DataError({.what = text.str(), .hint = hint});
}

GenerationSetting<double> number_of(const char* name, const std::optional<double>& option,
                                    const ModelConfig& file) {
  return {name, option ? *option : file.number(name, 1.0), option.has_value()};
}

std::optional<GenerationSetting<int64_t>> integer_of(const char* name,
                                                     const std::optional<int64_t>& option,
                                                     const ModelConfig& file) {
  if (option) return GenerationSetting<int64_t>{name, *option, true};
  if (file.has(name)) return GenerationSetting<int64_t>{name, file.integer(name), false};
  return std::nullopt;
}

// The length up to which the model knows positions; 0: not known.
int64_t known_positions(const ModelConfig& config) {
  return config.integer("max_position_embeddings", config.integer("n_positions", 0));
}

// `count` tokens after the prompt.
int64_t length_with(const GenerationSetting<int64_t>& count, int64_t least, int64_t prompt_length,
                    const ModelConfig& file) {
  if (count.value < least) {
    refuse(count, file, least == 0 ? "must be 0 or more" : "must be at least 1");
  }
  if (count.value > kMostLength - prompt_length) {
    refuse(count, file, "a text has at most 2147483647 tokens");
  }
  return prompt_length + count.value;
}

int64_t max_length_of(const PretrainedModel& model, const GenerationOptions& options,
                      int64_t prompt_length) {
  const ModelConfig& file = model.generation_config();
  const bool given = options.max_new_tokens || options.max_length;
  const ModelConfig nothing;
  const ModelConfig& looked_at = given ? nothing : file;
  if (const auto count = integer_of("max_new_tokens", options.max_new_tokens, looked_at)) {
    return length_with(*count, 1, prompt_length, file);
  }
  if (const auto length = integer_of("max_length", options.max_length, looked_at)) {
    if (length->value <= prompt_length) {
      refuse(*length, file, "the prompt alone is as long as that: nothing would be generated",
             "set max_new_tokens instead, which does not count the prompt");
    }
    if (length->value > kMostLength) {
      refuse(*length, file, "a text has at most 2147483647 tokens");
    }
    return length->value;
  }
  const int64_t known = known_positions(model.config());
  const int64_t usual = prompt_length + kDefaultNewTokens;
  return known > prompt_length ? std::min(usual, known) : usual;
}

int64_t min_length_of(const GenerationOptions& options, const ModelConfig& file,
                      int64_t prompt_length) {
  const auto count = integer_of("min_new_tokens", options.min_new_tokens, file);
  return count ? length_with(*count, 0, prompt_length, file) : file.integer("min_length", 0);
}

// Those of the file that are not tokens stand for none, as -1 does in some.
void choose_tokens_of(GenerationSettings& settings, const GenerationOptions& options,
                      const ModelConfig& file) {
  settings.eos_token_ids =
      options.eos_token_ids ? *options.eos_token_ids : file.integers("eos_token_id");
  for (const int64_t token : settings.eos_token_ids) {
    if (token < 0 && options.eos_token_ids) {
      refuse(GenerationSetting<int64_t>{"eos_token_ids", token, true}, file,
             "tokens are not negative");
    }
  }
  std::erase_if(settings.eos_token_ids, [](int64_t token) { return token < 0; });
  const auto choose = [&](const char* name, const std::optional<int64_t>& option) {
    const auto chosen = integer_of(name, option, file);
    if (chosen && chosen->value < 0 && chosen->given) {
      refuse(*chosen, file, "tokens are not negative");
    }
    return chosen && chosen->value >= 0 ? std::optional(chosen->value) : std::nullopt;
  };
  settings.pad_token_id = choose("pad_token_id", options.pad_token_id);
  if (!settings.pad_token_id && !settings.eos_token_ids.empty()) {
    settings.pad_token_id = settings.eos_token_ids.front();
  }
  settings.decoder_start_token_id =
      choose("decoder_start_token_id", options.decoder_start_token_id);
  if (!settings.decoder_start_token_id) {
    settings.decoder_start_token_id = choose("bos_token_id", std::nullopt);
  }
}

void choose_sampling(GenerationSettings& settings, const GenerationOptions& options,
                     const ModelConfig& file) {
  settings.do_sample = options.do_sample.value_or(file.flag("do_sample", false));
  const auto penalty = number_of("repetition_penalty", options.repetition_penalty, file);
  if (!(penalty.value > 0)) refuse(penalty, file, "must be above 0");
  settings.repetition_penalty = penalty.value;
  if (!settings.do_sample) return;
  const auto temperature = number_of("temperature", options.temperature, file);
  if (!(temperature.value > 0) || !std::isfinite(temperature.value)) {
    refuse(temperature, file, "must be above 0",
           "leave do_sample out for the best token each time");
  }
  settings.temperature = temperature.value;
  const auto top_k = integer_of("top_k", options.top_k, file);
  if (top_k && top_k->value < 0) refuse(*top_k, file, "must be 0, for all tokens, or more");
  settings.top_k = top_k ? top_k->value : kDefaultTopK;
  const auto top_p = number_of("top_p", options.top_p, file);
  // Python takes 0, which leaves the best token: files may have it.
  const bool positive = top_p.given ? top_p.value > 0 : top_p.value >= 0;
  if (!positive || top_p.value > 1) refuse(top_p, file, "must be above 0 and at most 1");
  settings.top_p = top_p.value;
}

// Says, once for each file, which of its settings change what Python does and are not followed
// here.
void warn_of_unknown_ways(const ModelConfig& file) {
  const auto not_usual = [&](const std::map<std::string, double>& usual) {
    std::string names;
    for (const auto& [name, value] : usual) {
      if (file.has(name) && file.number(name) != value) names += " " + name;
    }
    return names;
  };
  std::string names = not_usual({{"encoder_no_repeat_ngram_size", 0},
                                 {"encoder_repetition_penalty", 1},
                                 {"epsilon_cutoff", 0},
                                 {"eta_cutoff", 0},
                                 {"guidance_scale", 1},
                                 {"no_repeat_ngram_size", 0},
                                 {"num_beams", 1},
                                 {"num_return_sequences", 1},
                                 {"typical_p", 1}});
  for (const std::string name :
       {"bad_words_ids", "begin_suppress_tokens", "exponential_decay_length_penalty",
        "forced_bos_token_id", "forced_eos_token_id", "max_time", "min_p", "sequence_bias",
        "stop_strings", "suppress_tokens"}) {
    if (file.has(name)) names += " " + name;
  }
  if (names.empty()) return;
  const std::string text =
      "generate() does not follow these settings of " + file.name() + ":" + names;
  // Texts that were said, of the whole process: a program may load a model many times.
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) log(LogLevel::kWarning, text);
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
  const ModelConfig& file = model.generation_config();
  warn_of_unknown_ways(file);
  GenerationSettings settings;
  settings.max_length = max_length_of(model, options, prompt_length);
  settings.length_is_given = options.max_new_tokens || options.max_length;
  settings.min_length = min_length_of(options, file, prompt_length);
  choose_tokens_of(settings, options, file);
  choose_sampling(settings, options, file);
  return settings;
}

}  // namespace accelerate::transformers
