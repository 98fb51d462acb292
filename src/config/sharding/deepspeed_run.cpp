#include "config/sharding/deepspeed_run.h"

#include <algorithm>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "config/sharding/deepspeed_section.h"

namespace accelerate::config {
namespace {

using nlohmann::json;

constexpr const char* kMicroBatch = "train_micro_batch_size_per_gpu";
constexpr const char* kTotalBatch = "train_batch_size";
constexpr const char* kAccumulation = "gradient_accumulation_steps";
constexpr double kClippingIfNobodySays = 1.0;

constexpr const char* kLoaders = "the prepared loaders";
constexpr const char* kProgram = "the program";
constexpr const char* kModel = "the model";

int64_t batch_of_rank(const DeepspeedRun& run, int64_t loader_batch) {
  return run.split_batches ? loader_batch / run.ranks : loader_batch;
}

std::optional<int64_t> micro_batch_of(const DeepspeedRun& run) {
  if (run.loader_batches.empty()) return std::nullopt;
  const auto [least, most] = std::ranges::minmax(run.loader_batches);
  return batch_of_rank(run, run.takes_smallest_batch ? least : most);
}

// Of several loaders only that of training has to fit.
bool has_loader_of(const DeepspeedRun& run, int64_t micro_batch) {
  return std::ranges::any_of(
      run.loader_batches, [&](int64_t batch) { return batch_of_rank(run, batch) == micro_batch; });
}

// A whole number of the configuration that is settled.
std::optional<int64_t> settled(const DeepspeedDocument& document, const char* key) {
  const json* value = document.find(key);
  if (value == nullptr || *value == "auto") return std::nullopt;
  return DeepspeedSection(document, "").integer(key, 1, 1);
}

void add_batches(const DeepspeedDocument& document, const DeepspeedRun& run, AutoValues& values) {
  const auto said = settled(document, kMicroBatch);
  const auto of_loaders = micro_batch_of(run);
  if (of_loaders) {
    values[kMicroBatch] = {*of_loaders, kLoaders, !said || !has_loader_of(run, *said)};
  }
  const auto micro = said ? said : of_loaders;
  const auto steps = settled(document, kAccumulation);
  int64_t total = 0;
  if (!micro || !steps || __builtin_mul_overflow(*micro, *steps, &total) ||
      __builtin_mul_overflow(total, run.ranks, &total)) {
    return;
  }
  values[kTotalBatch] = {total, std::string(kMicroBatch) + ", " + kAccumulation + " and the ranks"};
}

void add_bucket_sizes(const DeepspeedRun& run, AutoValues& values) {
  if (run.hidden_sizes.empty()) return;
  const int64_t hidden = std::ranges::max(run.hidden_sizes);
  const double prefetch = 0.9 * static_cast<double>(hidden) * static_cast<double>(hidden);
  const std::string zero = "zero_optimization.";
  values[zero + "reduce_bucket_size"] = {hidden * hidden, kModel};
  values[zero + "stage3_prefetch_bucket_size"] = {static_cast<int64_t>(prefetch), kModel};
  values[zero + "stage3_param_persistence_threshold"] = {10 * hidden, kModel};
}

void add_optimizer(const DeepspeedRun& run, AutoValues& values) {
  if (run.lr) {
    values["optimizer.params.lr"] = {*run.lr, kProgram};
    values["scheduler.params.warmup_max_lr"] = {*run.lr, kProgram};
  }
  if (run.weight_decay) values["optimizer.params.weight_decay"] = {*run.weight_decay, kProgram};
  values["scheduler.params.warmup_min_lr"] = {0, kProgram};
  if (run.warmup_steps) values["scheduler.params.warmup_num_steps"] = {*run.warmup_steps, kProgram};
  if (run.training_steps) {
    const int64_t shares = run.split_batches ? 1 : run.ranks;
    values["scheduler.params.total_num_steps"] = {(*run.training_steps + shares - 1) / shares,
                                                  kProgram};
  }
}

struct Mismatch {
  std::string text;
  std::string place;
  std::string other_place;
};

// Walks over the configuration and fills it in.
class AutoFilling {
 public:
  AutoFilling(DeepspeedDocument& document, const AutoValues& values)
      : document_(document), values_(values) {}

  void section(json& entries, const std::string& path) {
    for (auto& [name, value] : entries.items()) {
      const std::string key = path.empty() ? name : path + "." + name;
      if (value.is_object()) {
        section(value, key);
      } else {
        entry(value, key);
      }
    }
  }

  void report() const {
    if (mismatches_.empty()) return;
    std::string lines;
    std::string places;
    for (const Mismatch& mismatch : mismatches_) {
      lines += "; " + mismatch.text;
      places += (places.empty() ? "" : "; ") + mismatch.place + " and " + mismatch.other_place;
    }
    throw ConfigError({.what = "the DeepSpeed configuration and the run contradict each other" +
                               lines.replace(0, 1, ":"),
                       .where = places,
                       .hint = "write \"auto\" there, which takes the value of the run"});
  }

 private:
  void entry(json& value, const std::string& key) {
    const auto found = values_.find(key);
    if (value == "auto") {
      if (found == values_.end()) refuse_open(key);
      value = found->second.value;
      document_.places[key] = document_.place_of(key) + ", filled in from " + found->second.place;
      return;
    }
    if (found == values_.end() || !found->second.must_match || value.is_null()) return;
    if (value == found->second.value) return;
    mismatches_.push_back({"- ds " + key + "=" + value_text(value) + " vs arg " + key + "=" +
                               value_text(found->second.value),
                           document_.place_of(key), found->second.place});
  }

  [[noreturn]] void refuse_open(const std::string& key) const {
    throw ConfigError({.what = "nothing is known from which the \"auto\" of " + shortened(key) +
                               " could be filled in",
                       .where = document_.place_of(key),
                       .hint = "write its value in place of \"auto\""});
  }

  DeepspeedDocument& document_;
  const AutoValues& values_;
  std::vector<Mismatch> mismatches_;
};

// Whether the configuration enables `name`; nothing where it does not say.
std::optional<bool> says_enabled(const DeepspeedDocument& document, const std::string& name) {
  const json* enabled = document.find(name + ".enabled");
  if (enabled == nullptr || *enabled == "auto") return std::nullopt;
  return *enabled == true;
}

}  // namespace

AutoValues auto_values(const DeepspeedDocument& document, const DeepspeedRun& run) {
  AutoValues values;
  values["gradient_clipping"] = {kClippingIfNobodySays, "the value where nobody gives one"};
  values["zero_optimization.stage3_gather_16bit_weights_on_model_save"] = {
      false, "the value where nobody gives one"};
  add_batches(document, run, values);
  add_bucket_sizes(run, values);
  add_optimizer(run, values);
  return values;
}

void fill_auto(DeepspeedDocument& document, const AutoValues& values) {
  AutoFilling filling(document, values);
  filling.section(document.values, "");
  filling.report();
}

void settle_accumulation(DeepspeedDocument& document,
                         const std::optional<int64_t>& accumulation_steps) {
  const json* present = document.find(kAccumulation);
  const bool is_open = present == nullptr || *present == "auto" || document.assumes_accumulation;
  if (is_open) {
    // Where all three are left to it, DeepSpeed derives the steps from the batches.
    if (document.assumes_accumulation && !accumulation_steps) return;
    document.set(kAccumulation, accumulation_steps.value_or(1), kProgram);
    document.assumes_accumulation = false;
    return;
  }
  if (!accumulation_steps || *present == *accumulation_steps) return;
  refuse_contradiction(std::string(kAccumulation) + " is " + value_text(*present) +
                           " in the DeepSpeed configuration, but " +
                           std::to_string(*accumulation_steps) + " in the program",
                       document.place_of(kAccumulation), kProgram,
                       "write \"auto\" in the DeepSpeed configuration");
}

DeepspeedDocument part_of(const DeepspeedDocument& document,
                          std::initializer_list<const char*> keys) {
  DeepspeedDocument part = document;
  part.values = json::object();
  for (const char* key : keys) {
    if (const json* value = document.find(key)) part.values[key] = *value;
  }
  return part;
}

void fill_auto(DeepspeedDocument& document, const DeepspeedRun& run) {
  settle_accumulation(document, run.accumulation_steps);
  fill_auto(document, auto_values(document, run));
}

void check_brought(const DeepspeedDocument& document, Brought optimizer, Brought scheduler) {
  for (const auto& [section, brought] :
       {std::pair{"optimizer", optimizer}, std::pair{"scheduler", scheduler}}) {
    const std::string name(section);
    const bool is_configured = document.find(section) != nullptr;
    if (is_configured && brought == Brought::kOwn) {
      refuse_contradiction(
          "the DeepSpeed configuration has a section " + name + ", and the program brings its own",
          document.place_of(section), kProgram, "take the section out, or pass a placeholder");
    }
    if (!is_configured && brought == Brought::kPlaceholder) {
      throw UsageError({.what = "the program passes a placeholder for the " + name +
                                ", and the DeepSpeed configuration has none",
                        .where = document.name,
                        .hint = "add the section " + name + ", or pass one of torch"});
    }
  }
  if (optimizer == Brought::kPlaceholder && scheduler == Brought::kOwn) {
    throw UsageError({.what = "a schedule of the program's own needs its own optimizer too",
                      .where = document.place_of("optimizer"),
                      .hint = "pass a placeholder for the schedule"});
  }
}

void set_precision(DeepspeedDocument& document, std::string_view precision,
                   const std::string& place) {
  for (const std::string name : {"fp16", bf16_section(document)}) {
    const std::string key = name + ".enabled";
    const bool is_wanted = precision == (name == "fp16" ? "fp16" : "bf16");
    const std::optional<bool> said = says_enabled(document, name);
    // A run without mixed precision leaves the choice to the configuration.
    if (said && precision != "no" && *said != is_wanted && (*said || is_wanted)) {
      refuse_contradiction("mixed_precision is " + std::string(precision) + ", but " + key +
                               " is " + (*said ? "true" : "false"),
                           place, document.place_of(key),
                           "write \"enabled\": \"auto\" in the DeepSpeed configuration");
    }
    if (said) continue;
    const bool is_new = document.find(name) == nullptr;
    document.set(key, is_wanted, place);
    if (is_new && is_wanted && precision == "fp16") document.set("fp16.auto_cast", true, place);
  }
}

}  // namespace accelerate::config
