// What the variables of this process ask of a training in the words of DeepSpeed or FSDP, as
// `accelerate launch` sets them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/options.h"
#include "accelerate/process_state.h"
#include "accelerate/zero.h"
#include "config/sharding/sharding_request.h"

namespace torch::nn {
class Module;
}

namespace accelerate {

// One for each accelerator. What it decides follows from the variables and the options alone, so
// that all ranks decide alike; nothing is communicated.
class TrainingConfiguration {
 public:
  // Null where the variables ask for neither. Throws ConfigError for both at once, and for a
  // configuration of DeepSpeed that cannot be read.
  static std::shared_ptr<TrainingConfiguration> read(const EnvironmentLookup& lookup, int ranks);

  // Gives what `options` leave open the values of the configuration: strategy, mixed precision and
  // its scaler, accumulation. Throws ConfigError that names both places where both say it and
  // differ, and for what this build cannot do.
  void apply(AcceleratorOptions& options, const EnvironmentLookup& lookup);

  // "DeepSpeed" or "FSDP".
  const char* name() const { return document_ ? "DeepSpeed" : "FSDP"; }
  int stage() const { return request_.stage.value; }
  // Keys and settings that change nothing, for people; empty where all do.
  const std::vector<std::string>& without_effect() const { return without_effect_; }
  // Null where it is of FSDP.
  const config::DeepspeedDocument* deepspeed() const { return document_ ? &*document_ : nullptr; }

  // What of it all ranks must have alike, by name and value.
  std::vector<std::pair<std::string, std::string>> facts() const;

  // The norm that gradients are clipped to before each update.
  struct Clipping {
    double max_norm = 0;
    bool is_auto = false;  // the configuration leaves it to the program
    std::string place{};
  };
  std::optional<Clipping> clipping() const;

  // The options of the strategy with the sizes that follow from `model`; nothing where all of them
  // were known before, and from the second call on.
  std::optional<ZeroOptions> options_for(const torch::nn::Module& model);

  // A loader was prepared whose batches have so many rows.
  void add_loader(int64_t batch_size) { loader_batches_.push_back(batch_size); }
  // Checks the batch sizes once all loaders are known. Returns how many batches make an update.
  // Throws ConfigError where they do not fit together.
  int64_t settle_batches(bool split_batches);

 private:
  TrainingConfiguration(const EnvironmentLookup& lookup, int ranks);
  void apply_precision(AcceleratorOptions& options, const EnvironmentLookup& lookup);
  void apply_accumulation(AcceleratorOptions& options);

  int ranks_;
  std::optional<config::DeepspeedDocument> document_{};  // of DeepSpeed
  config::GivenValues given_;
  config::ShardingRequest request_{};
  AcceleratorOptions own_{};  // as the program gave them
  int64_t accumulation_steps_ = 1;
  std::vector<int64_t> loader_batches_{};
  std::vector<std::string> without_effect_{};
};

}  // namespace accelerate
