// Texts continued token by token.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "accelerate/export.h"
#include "accelerate/transformers/model.h"

namespace accelerate::transformers {

// What is not set here comes from the model's generation_config(), else is as noted.
struct GenerationOptions {
  // 20 if neither length is set, but not beyond the last position that the model knows. Where that
  // has a table of positions, as GPT-2, a length of generation_config() ends there too, and one
  // given here that needs more positions, should no EOS come, is refused before the first token.
  std::optional<int64_t> max_new_tokens{};
  std::optional<int64_t> max_length{};         // prompt included
  std::optional<int64_t> min_new_tokens{};     // 0: until then no EOS
  std::optional<bool> do_sample{};             // false: the best token each time
  std::optional<double> temperature{};         // 1
  std::optional<int64_t> top_k{};              // 50; 0: all
  std::optional<double> top_p{};               // 1
  std::optional<double> repetition_penalty{};  // 1
  std::optional<std::vector<int64_t>> eos_token_ids{};
  std::optional<int64_t> pad_token_id{};  // the first EOS
  std::optional<int64_t> decoder_start_token_id{};
  // The same seed gives the same texts. Unset: the default generator of the device.
  std::optional<uint64_t> seed{};
  bool use_cache = true;
  // Called after each step with the new tokens, [batch] on the CPU, which it may keep; false stops.
  std::function<bool(const at::Tensor& tokens)> on_tokens{};
};

// Continues the texts of `inputs` (input_ids, and attention_mask where they are padded, on the left
// for models without an encoder). Returns prompts with what follows, [batch, longest] of int64; for
// models with an encoder the decoder's output, start token included. A text that has reached
// its EOS is filled with the pad token. In eval() mode, without gradients; the modes of all modules
// are restored. Throws UsageError for a model that cannot generate, invalid options and padding on
// the right, DataError for an invalid generation_config.json.
ACCELERATE_EXPORT at::Tensor generate(PretrainedModel& model, const ModelInputs& inputs,
                                      const GenerationOptions& options = {});

}  // namespace accelerate::transformers
