// What a call of generate() does, once everything is decided.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "accelerate/transformers/generation.h"

namespace accelerate::transformers {

struct GenerationSettings {
  int64_t max_length = 0;        // prompt included
  bool length_is_given = false;  // by the caller
  int64_t min_length = 0;        // prompt included: before it no EOS
  bool do_sample = false;
  double temperature = 1.0;
  int64_t top_k = 0;  // 0: all
  double top_p = 1.0;
  double repetition_penalty = 1.0;
  std::vector<int64_t> eos_token_ids{};
  std::optional<int64_t> pad_token_id{};
  std::optional<int64_t> decoder_start_token_id{};
};

// From the options, else the model's generation_config(), else the defaults, for prompts of that
// many positions. Throws UsageError for a model that cannot generate and values that make no sense,
// DataError where those are in the file.
GenerationSettings generation_settings(const PretrainedModel& model,
                                       const GenerationOptions& options, int64_t prompt_length);

}  // namespace accelerate::transformers
