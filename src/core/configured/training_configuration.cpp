#include "core/configured/training_configuration.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "accelerate/errors.h"
#include "accelerate/mixed_precision.h"
#include "base/environment.h"
#include "config/sharding/deepspeed_keys.h"
#include "config/sharding/deepspeed_run.h"
#include "config/sharding/deepspeed_section.h"
#include "config/sharding/sharding_settings.h"
#include "core/configured/configured_strategy.h"
#include "core/configured/settled_option.h"

namespace accelerate {
namespace {

constexpr const char* kUseDeepspeed = "ACCELERATE_USE_DEEPSPEED";
constexpr const char* kUseFsdp = "ACCELERATE_USE_FSDP";
constexpr const char* kTotalRows = "train_batch_size";
constexpr const char* kMicroRows = "train_micro_batch_size_per_gpu";
constexpr const char* kBatchesOfUpdate = "gradient_accumulation_steps";
constexpr const char* kClippedNorm = "gradient_clipping";
constexpr double kAutoNorm = 1.0;

std::string variable_place(const char* name) { return std::string("environment variable ") + name; }

bool asks_for(const EnvironmentLookup& lookup, const char* name) {
  const std::string text = lookup(name).value_or("");
  return !text.empty() && parse_flag(name, text);
}

MixedPrecision precision_of(config::PlanDtype dtype) {
  switch (dtype) {
    case config::PlanDtype::kFloat16:
      return MixedPrecision::kFp16;
    case config::PlanDtype::kBfloat16:
      return MixedPrecision::kBf16;
    case config::PlanDtype::kFloat32:
      break;
  }
  return MixedPrecision::kNo;
}

// The scale that DeepSpeed would use, where the program leaves it open.
void configure_scaler(const config::DeepspeedDocument& document, const config::LossScalePlan& plan,
                      GradScalerOptions& options) {
  const GradScalerOptions preset;
  const auto settle = [&](auto GradScalerOptions::*field, auto configured, const char* name,
                          const std::string& key) {
    const bool is_programs = options.*field != preset.*field;
    if (is_programs && document.find(key) == nullptr) return;
    using Field = std::remove_reference_t<decltype(options.*field)>;
    settle_option(options.*field, preset.*field, static_cast<Field>(configured),
                  std::string("GradScalerOptions::") + name, document.place_of(key));
  };
  const bool is_fixed = plan.fixed > 0;
  settle(&GradScalerOptions::init_scale,
         is_fixed ? plan.fixed : std::ldexp(1.0, static_cast<int>(plan.initial_power)),
         "init_scale", is_fixed ? "fp16.loss_scale" : "fp16.initial_scale_power");
  settle(&GradScalerOptions::adapts, !is_fixed, "adapts", "fp16.loss_scale");
  settle(&GradScalerOptions::growth_interval, plan.window, "growth_interval",
         "fp16.loss_scale_window");
  settle(&GradScalerOptions::hysteresis, plan.hysteresis, "hysteresis", "fp16.hysteresis");
  settle(&GradScalerOptions::overflows_in_a_row, plan.counts_in_a_row, "overflows_in_a_row",
         "fp16.consecutive_hysteresis");
  settle(&GradScalerOptions::min_scale, plan.smallest, "min_scale", "fp16.min_loss_scale");
}

// The width of a transformer is that of its norms. Nothing where there are none.
std::optional<int64_t> hidden_size_of(const torch::nn::Module& model) {
  int64_t widest = 0;
  for (const auto& item : model.named_parameters()) {
    const bool is_weight = item.key() == "weight" || item.key().ends_with(".weight");
    if (is_weight && item.value().dim() == 1) widest = std::max(widest, item.value().numel());
  }
  return widest > 0 ? std::optional(widest) : std::nullopt;
}

}  // namespace

TrainingConfiguration::TrainingConfiguration(const EnvironmentLookup& lookup, int ranks)
    : ranks_(ranks), given_(config::given_by_variables(lookup)) {}

std::shared_ptr<TrainingConfiguration> TrainingConfiguration::read(const EnvironmentLookup& lookup,
                                                                   int ranks) {
  const bool is_deepspeed = asks_for(lookup, kUseDeepspeed);
  const bool is_fsdp = asks_for(lookup, kUseFsdp);
  if (!is_deepspeed && !is_fsdp) return nullptr;
  if (is_deepspeed && is_fsdp) {
    config::refuse_contradiction("this process is told to train with DeepSpeed and with FSDP",
                                 variable_place(kUseDeepspeed), variable_place(kUseFsdp),
                                 "unset one of them");
  }
  std::shared_ptr<TrainingConfiguration> made(new TrainingConfiguration(lookup, ranks));
  if (is_deepspeed) made->document_ = config::deepspeed_document(made->given_);
  return made;
}

void TrainingConfiguration::apply(AcceleratorOptions& options, const EnvironmentLookup& lookup) {
  if (document_) {
    without_effect_ = config::keys_without_effect(*document_);
    apply_precision(options, lookup);
    apply_accumulation(options);
    request_ = config::deepspeed_request(*document_, ranks_);
  } else {
    request_ = config::fsdp_request(given_, ranks_);
  }
  without_effect_.insert(without_effect_.end(), request_.without_effect.begin(),
                         request_.without_effect.end());
  own_ = options;
  configure_strategy(request_, options);
}

void TrainingConfiguration::apply_precision(AcceleratorOptions& options,
                                            const EnvironmentLookup& lookup) {
  constexpr const char* kOption = "AcceleratorOptions::mixed_precision";
  const bool is_option = options.mixed_precision.has_value();
  const MixedPrecision own = resolve_mixed_precision(options.mixed_precision, lookup);
  config::set_precision(*document_, own.name(),
                        is_option ? kOption : variable_place("ACCELERATE_MIXED_PRECISION"));
  const config::PrecisionPlan plan = config::precision_plan(*document_);
  const MixedPrecision planned = precision_of(plan.dtype);
  if (is_option && own != planned) {
    const std::string section =
        planned == MixedPrecision::kFp16 ? "fp16" : config::bf16_section(*document_);
    config::refuse_contradiction(
        "mixed_precision is " + std::string(own.name()) + ", but " + section + " is enabled",
        kOption, document_->place_of(section + ".enabled"),
        "leave mixed_precision out of the program");
  }
  options.mixed_precision = planned;
  if (planned == MixedPrecision::kFp16) {
    configure_scaler(*document_, plan.loss_scale, options.grad_scaler);
  }
}

void TrainingConfiguration::apply_accumulation(AcceleratorOptions& options) {
  config::settle_accumulation(*document_, options.gradient_accumulation.steps);
  const auto* steps = document_->find(kBatchesOfUpdate);
  if (steps != nullptr && steps->is_number()) {
    accumulation_steps_ = config::DeepspeedSection(*document_, "").integer(kBatchesOfUpdate, 1, 1);
  }
  if (!document_->is_auto(kTotalRows) && !document_->is_auto(kMicroRows)) {
    accumulation_steps_ = config::batch_plan(*document_, ranks_).accumulation_steps;
  }
  options.gradient_accumulation.steps = accumulation_steps_;
}

std::vector<std::pair<std::string, std::string>> TrainingConfiguration::facts() const {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"the stage of sharding", std::to_string(stage())}};
  if (!document_) return facts;
  for (const char* key : {"gradient_accumulation_steps", "gradient_clipping", "optimizer",
                          "scheduler", "fp16", "bf16", "zero_optimization"}) {
    const auto* value = document_->find(key);
    facts.emplace_back(key, value != nullptr ? value->dump() : "nothing");
  }
  return facts;
}

std::optional<TrainingConfiguration::Clipping> TrainingConfiguration::clipping() const {
  const auto* norm = document_ ? document_->find(kClippedNorm) : nullptr;
  if (norm == nullptr) return std::nullopt;
  const std::string place = document_->place_of(kClippedNorm);
  if (*norm == "auto") return Clipping{kAutoNorm, true, place};
  const double max_norm = config::DeepspeedSection(*document_, "").number(kClippedNorm, 0);
  if (max_norm == 0) return std::nullopt;
  return Clipping{max_norm, false, place};
}

std::optional<ZeroOptions> TrainingConfiguration::options_for(const torch::nn::Module& model) {
  if (!document_ || !config::has_open_sizes(*document_)) return std::nullopt;
  // Stage 1 exchanges gradients as DDP does.
  config::fill_sizes(*document_, stage() >= 2 ? hidden_size_of(model) : std::nullopt);
  AcceleratorOptions options = own_;
  configure_strategy(config::deepspeed_request(*document_, ranks_), options);
  const auto* zero = std::get_if<ZeroOptions>(&options.strategy);
  return zero != nullptr ? std::optional(*zero) : std::nullopt;
}

int64_t TrainingConfiguration::settle_batches(bool split_batches) {
  if (!document_) return own_.gradient_accumulation.steps.value_or(1);
  config::DeepspeedDocument batches =
      config::part_of(*document_, {kTotalRows, kMicroRows, kBatchesOfUpdate});
  const bool knows_micro = !batches.is_auto(kMicroRows) || !loader_batches_.empty();
  // Nothing is computed from the size of a batch alone.
  if (!knows_micro && batches.is_auto(kTotalRows)) return accumulation_steps_;
  config::fill_auto(
      batches,
      {.ranks = ranks_, .loader_batches = loader_batches_, .split_batches = split_batches});
  return config::batch_plan(batches, ranks_).accumulation_steps;
}

}  // namespace accelerate
