#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/errors.h"
#include "accelerate/transformers/generation.h"
#include "transformers/generation/best_token.h"
#include "transformers/generation/scores.h"
#include "transformers/generation/settings.h"
#include "transformers/models/decoding.h"

namespace accelerate::transformers {
namespace {

// Room that a cache gets at once; longer texts make it grow.
constexpr int64_t kMostRoom = 4096;
// Columns that texts get beyond those they have; longer ones make them grow.
constexpr int64_t kFirstColumns = 256;

// `kept` with `wanted` columns, of which the first `used` are those it had.
at::Tensor widened(const at::Tensor& kept, int64_t used, int64_t wanted) {
  at::Tensor wider = at::empty({kept.size(0), wanted}, kept.options());
  wider.slice(1, 0, used).copy_(kept.slice(1, 0, used));
  return wider;
}

// The model in eval() mode, and each of its modules back in the mode it had.
class EvalMode {
 public:
  explicit EvalMode(PretrainedModel& model) : model_(model), was_training_(model.is_training()) {
    for (const auto& module : model.modules(/*include_self=*/false)) {
      modes_.emplace_back(module, module->is_training());
    }
    model.eval();
  }
  ~EvalMode() {
    if (was_training_) model_.train();
    // Parents come before their children, which follow them and are then set themselves.
    for (const auto& [module, training] : modes_) {
      if (module->is_training() != training) module->train(training);
    }
  }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  PretrainedModel& model_;
  const bool was_training_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_{};
};

std::optional<at::Generator> generator_of(const std::optional<uint64_t>& seed,
                                          const at::Tensor& like) {
  if (!seed) return std::nullopt;
  at::Generator usual = at::globalContext().defaultGenerator(like.device());
  at::Generator own;
  {
    const std::lock_guard lock(usual.mutex());
    own = usual.clone();
  }
  own.set_current_seed(*seed);
  return own;
}

// The mask of the prompts as booleans, undefined where nothing is padded. Without one, pad tokens
// are taken for padding where they cannot be meant: as Hugging Face's transformers do.
at::Tensor prompt_mask(const ModelInputs& inputs, const GenerationSettings& settings) {
  at::Tensor mask = inputs.attention_mask;
  if (!mask.defined()) {
    const auto& ends = settings.eos_token_ids;
    if (!settings.pad_token_id || std::ranges::count(ends, *settings.pad_token_id) > 0) return {};
    mask = inputs.input_ids != *settings.pad_token_id;
  }
  mask = mask.to(at::kBool);
  return mask.all().item<bool>() ? at::Tensor() : mask;
}

void check_prompt(const ModelInputs& inputs) {
  const at::Tensor& ids = inputs.input_ids;
  if (!ids.defined() || ids.dim() != 2 || ids.scalar_type() != at::kLong || ids.numel() == 0) {
    throw UsageError(
        {.what = "input_ids must be int64 [batch, positions], and not empty", .where = "generate"});
  }
  if (inputs.attention_mask.defined() && inputs.attention_mask.sizes() != ids.sizes()) {
    throw UsageError(
        {.what = "attention_mask must have the shape of input_ids", .where = "generate"});
  }
  const at::Tensor& said = inputs.decoder_input_ids;
  if (said.defined() && (said.dim() != 2 || said.size(0) != ids.size(0) || said.numel() == 0 ||
                         said.scalar_type() != at::kLong)) {
    throw UsageError({.what = "decoder_input_ids must be int64 [batch, positions] for the batch of "
                              "input_ids, and not empty",
                      .where = "generate"});
  }
  const at::Tensor& mask = inputs.decoder_attention_mask;
  if (mask.defined() && (!said.defined() || mask.sizes() != said.sizes())) {
    throw UsageError({.what = "decoder_attention_mask must have the shape of decoder_input_ids",
                      .where = "generate"});
  }
}

// One call of generate(): the texts so far and what the next step needs.
class Run {
 public:
  Run(PretrainedModel& model, const ModelInputs& inputs, const GenerationOptions& options,
      bool had_gradients);

  at::Tensor texts();

 private:
  void start_decoder(const at::Tensor& encoder_mask);
  void start_prompt(const at::Tensor& mask);
  // On any device: after a wrong number on a GPU the process could not use that any more.
  void check_tokens() const;
  // Of models with a table of positions: what would run out of it is refused before it starts.
  void keep_within_positions();
  // What the model is given next, and what follows from that it was.
  void prepare_inputs();
  void count_inputs();
  // The next token of each text, [batch] of int64 on the CPU.
  at::Tensor next_tokens();
  // Puts pad tokens where texts have ended and returns whether any goes on.
  bool finish_tokens(at::Tensor& tokens);
  // Adds a column.
  void append(const at::Tensor& tokens);
  at::Tensor seen() const { return sequences_.slice(1, 0, length_); }

  PretrainedModel& model_;
  const GenerationOptions& options_;
  const bool had_gradients_;  // outside
  ModelInputs inputs_;
  GenerationSettings settings_{};
  std::optional<at::Generator> generator_{};
  KeyValueCache cache_;
  ForwardOptions forward_{};
  at::Tensor sequences_{};  // [batch, columns]; `length_` of them are filled
  at::Tensor mask_{};       // the same shape; undefined where nothing is padded
  at::Tensor positions_{};  // of the tokens that the model is given; undefined: from 0 on
  int64_t length_ = 0;
  int64_t processed_ = 0;  // columns that are in the cache
  std::vector<char> ended_{};
  FactoredLogits* factored_ = nullptr;
  std::optional<BestToken> best_{};
};

Run::Run(PretrainedModel& model, const ModelInputs& inputs, const GenerationOptions& options,
         bool had_gradients)
    : model_(model), options_(options), had_gradients_(had_gradients), inputs_(inputs) {
  check_prompt(inputs);
  const bool decoder = model.is_encoder_decoder();
  const at::Tensor& given = inputs.decoder_input_ids;
  length_ = decoder ? (given.defined() ? given.size(1) : 1) : inputs.input_ids.size(1);
  settings_ = generation_settings(model, options, length_);
  inputs_.labels = at::Tensor();
  const at::Tensor& ids = inputs.input_ids;
  sequences_ = at::empty({ids.size(0), std::min(settings_.max_length, length_ + kFirstColumns)},
                         ids.options());
  ended_.assign(static_cast<size_t>(ids.size(0)), 0);
  generator_ = generator_of(options.seed, ids);
  if (options.use_cache) {
    cache_ = KeyValueCache(std::min(settings_.max_length, kMostRoom));
    forward_.cache = &cache_;
  }
  forward_.logits_to_keep = 1;
  factored_ = dynamic_cast<FactoredLogits*>(&model);
  check_tokens();
  const bool best = !settings_.do_sample && settings_.repetition_penalty == 1;
  if (best && factored_ != nullptr &&
      BestToken::fits(factored_->output_matrix(), ids.size(0), settings_.max_length - length_)) {
    best_.emplace(factored_->output_matrix());
  }
  const at::Tensor mask = prompt_mask(inputs, settings_);
  if (decoder) {
    start_decoder(mask);
  } else {
    start_prompt(mask);
    keep_within_positions();
  }
}

void Run::check_tokens() const {
  if (factored_ == nullptr) return;
  const int64_t vocabulary = factored_->output_matrix().size(0);
  check_text({.input_ids = inputs_.input_ids.cpu()}, {.vocabulary = vocabulary},
             model_.architecture());
  if (inputs_.decoder_input_ids.defined()) {
    check_text({.input_ids = inputs_.decoder_input_ids.cpu()},
               {.vocabulary = vocabulary, .ids = "decoder_input_ids"}, model_.architecture());
  }
  const bool is_filled = ended_.size() > 1 && !settings_.eos_token_ids.empty();
  if (!is_filled || *settings_.pad_token_id < vocabulary) return;
  throw UsageError({.what = "texts that have ended are filled with the pad token " +
                            std::to_string(*settings_.pad_token_id) + ", but the model has " +
                            std::to_string(vocabulary) + " tokens",
                    .where = "generate",
                    .hint = "set pad_token_id, or give the model rows for more tokens: "
                            "model->resize_token_embeddings()"});
}

void Run::start_decoder(const at::Tensor& encoder_mask) {
  inputs_.attention_mask = encoder_mask;
  if (inputs_.decoder_input_ids.defined()) {
    seen().copy_(inputs_.decoder_input_ids);
  } else {
    if (!settings_.decoder_start_token_id) {
      throw UsageError({.what = "the token that the decoder starts with is not set",
                        .where = "generate",
                        .hint = "set decoder_start_token_id"});
    }
    seen().fill_(*settings_.decoder_start_token_id);
  }
  forward_.encoder_last_hidden_state = model_.encode(inputs_);
  if (inputs_.decoder_attention_mask.defined()) {
    mask_ = at::ones(sequences_.sizes(), sequences_.options().dtype(at::kBool));
    mask_.slice(1, 0, length_).copy_(inputs_.decoder_attention_mask);
  }
}

void Run::start_prompt(const at::Tensor& mask) {
  seen().copy_(inputs_.input_ids);
  inputs_.attention_mask = at::Tensor();
  positions_ = inputs_.position_ids;
  if (!mask.defined()) return;
  if (!mask.select(1, -1).all().item<bool>()) {
    throw UsageError({.what = "a prompt is padded on the right: the text would go on after the "
                              "padding",
                      .where = "generate",
                      .hint = "pad on the left, and give the attention_mask"});
  }
  mask_ = at::ones(sequences_.sizes(), mask.options());
  mask_.slice(1, 0, length_).copy_(mask);
  if (!positions_.defined()) {
    positions_ = (mask.to(at::kLong).cumsum(1) - 1).clamp_min_(0);
  }
}

void Run::keep_within_positions() {
  const int64_t table = factored_ == nullptr ? kNoTable : factored_->most_positions();
  if (table == kNoTable) return;
  const int64_t used = positions_.defined() ? positions_.max().item<int64_t>() + 1 : length_;
  if (used > table) {
    throw UsageError({.what = "prompts of " + std::to_string(used) + " positions for " +
                              model_.architecture() + ", which has " + std::to_string(table),
                      .where = "generate",
                      .hint = "truncate them when you tokenize"});
  }
  // The last token is not given to the model any more.
  const int64_t most = table - used + 1;
  const int64_t wanted = settings_.max_length - length_;
  if (wanted <= most) return;
  if (settings_.length_is_given) {
    throw UsageError(
        {.what = "prompts of " + std::to_string(used) + " positions and " + std::to_string(wanted) +
                 " new tokens need " + std::to_string(used + wanted - 1) + " positions, " +
                 model_.architecture() + " has " + std::to_string(table),
         .where = "generate",
         .hint = "generate at most " + std::to_string(most) + " tokens, or shorten the prompts"});
  }
  settings_.max_length = length_ + most;
}

void Run::prepare_inputs() {
  const int64_t first = options_.use_cache ? processed_ : 0;
  const at::Tensor tokens = sequences_.slice(1, first, length_);
  if (model_.is_encoder_decoder()) {
    inputs_.decoder_input_ids = tokens;
    if (mask_.defined()) inputs_.decoder_attention_mask = mask_.slice(1, 0, length_);
  } else {
    inputs_.input_ids = tokens;
    if (mask_.defined()) inputs_.attention_mask = mask_.slice(1, 0, length_);
    if (positions_.defined()) inputs_.position_ids = positions_;
  }
}

void Run::count_inputs() {
  processed_ = length_;
  const auto followed_by = [&](const at::Tensor& columns, int64_t step) {
    const at::Tensor next = columns.slice(1, columns.size(1) - 1) + step;
    return options_.use_cache ? next : at::cat({columns, next}, 1);
  };
  if (positions_.defined()) positions_ = followed_by(positions_, 1);
  if (inputs_.token_type_ids.defined()) {
    inputs_.token_type_ids = followed_by(inputs_.token_type_ids, 0);
  }
}

at::Tensor Run::next_tokens() {
  prepare_inputs();
  if (best_) {
    const at::Tensor features = factored_->last_features(inputs_, forward_);
    count_inputs();
    const bool may_end = length_ >= settings_.min_length;
    return best_->choose(features, may_end ? std::vector<int64_t>{} : settings_.eos_token_ids);
  }
  at::Tensor scores = model_.forward(inputs_, forward_)
                          .logits.select(1, -1)
                          .to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  count_inputs();
  process_scores(scores, seen(), settings_);
  return choose_tokens(scores, settings_.do_sample, generator_).cpu();
}

bool Run::finish_tokens(at::Tensor& tokens) {
  if (settings_.eos_token_ids.empty()) return true;
  auto* token = tokens.data_ptr<int64_t>();
  bool goes_on = false;
  for (char& ended : ended_) {
    if (ended != 0) {
      *token = *settings_.pad_token_id;
    } else if (std::ranges::count(settings_.eos_token_ids, *token) > 0) {
      ended = 1;
    }
    goes_on = goes_on || ended == 0;
    ++token;
  }
  return goes_on;
}

void Run::append(const at::Tensor& tokens) {
  if (length_ == sequences_.size(1)) {
    const int64_t wanted = std::min(settings_.max_length, 2 * length_);
    sequences_ = widened(sequences_, length_, wanted);
    if (mask_.defined()) {
      mask_ = widened(mask_, length_, wanted);
      mask_.slice(1, length_).fill_(true);
    }
  }
  sequences_.select(1, length_).copy_(tokens);
  ++length_;
}

at::Tensor Run::texts() {
  bool goes_on = true;
  while (goes_on && length_ < settings_.max_length) {
    at::Tensor tokens = next_tokens();
    goes_on = finish_tokens(tokens);
    append(tokens);
    if (options_.on_tokens) {
      // What is called there is not part of this, and may do as it likes.
      const at::InferenceMode no_inference(false);
      const at::AutoGradMode gradients(had_gradients_);
      if (!options_.on_tokens(tokens.clone())) break;
    }
  }
  return seen().clone();
}

}  // namespace

at::Tensor generate(PretrainedModel& model, const ModelInputs& inputs,
                    const GenerationOptions& options) {
  const EvalMode eval(model);
  const bool gradients = at::GradMode::is_enabled();
  at::Tensor found;
  {
    const at::InferenceMode inference;
    found = Run(model, inputs, options, gradients).texts();
  }
  // Outside of inference mode the result can be used like any other tensor.
  return found.clone();
}

}  // namespace accelerate::transformers
