// What a run knows that a DeepSpeed configuration may leave open as "auto".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/sharding/deepspeed_document.h"

namespace accelerate::config {

struct DeepspeedRun {
  int ranks = 1;
  // The batch sizes of the prepared loaders; the smallest counts, or the largest.
  std::vector<int64_t> loader_batches{};
  bool takes_smallest_batch = true;
  bool split_batches = false;  // a loader's batch is shared by the ranks
  // Where the program says it; else the configuration decides.
  std::optional<int64_t> accumulation_steps{};
  std::vector<int64_t> hidden_sizes{};  // of the model; the largest counts
  // Of the placeholders that stand for an optimizer and a schedule of the configuration.
  std::optional<double> lr{};
  std::optional<double> weight_decay{};
  std::optional<int64_t> warmup_steps{};
  std::optional<int64_t> training_steps{};  // batches of all ranks together, as loaders count them
};

// What a key is to be where it says "auto"; and where it says something else, whether that must be
// the same.
struct AutoValue {
  nlohmann::json value{};
  std::string place{};
  bool must_match = false;
};
using AutoValues = std::map<std::string, AutoValue, std::less<>>;

// The values of `run` for a configuration that begins like `document`.
AutoValues auto_values(const DeepspeedDocument& document, const DeepspeedRun& run);

// Puts `values` where the configuration says "auto". Throws ConfigError that names every key and
// both places where the configuration says something else than a value that must match, and for an
// "auto" that no value fills.
void fill_auto(DeepspeedDocument& document, const AutoValues& values);

// fill_auto() with the values of `run`, after accumulation is settled, which others follow from.
void fill_auto(DeepspeedDocument& document, const DeepspeedRun& run);

// How many batches make an update: what the configuration says, else what the program says, else 1.
// Where the configuration leaves all batch sizes but the total to the run, it stays open. Throws
// ConfigError that names both places where both say it and differ.
void settle_accumulation(DeepspeedDocument& document,
                         const std::optional<int64_t>& accumulation_steps);

// These keys of the top alone, with who gave them: a section that is filled in before the rest is
// known.
DeepspeedDocument part_of(const DeepspeedDocument& document,
                          std::initializer_list<const char*> keys);

// Whether a program brings its own optimizer, or schedule, or something that stands for that of the
// configuration.
enum class Brought { kNothing, kPlaceholder, kOwn };

// Throws ConfigError where the configuration and the program both bring one, UsageError for a
// placeholder without anything to stand for, and for a schedule over a placeholder's optimizer.
void check_brought(const DeepspeedDocument& document, Brought optimizer, Brought scheduler);

// Writes fp16 and bf16 for a run in `precision`: "no", "fp16" or "bf16", as `place` said. Throws
// ConfigError that names both places if the configuration enables the other one, or switches this
// one off.
void set_precision(DeepspeedDocument& document, std::string_view precision,
                   const std::string& place);

}  // namespace accelerate::config
