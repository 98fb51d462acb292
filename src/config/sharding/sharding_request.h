// What a configuration of DeepSpeed, or settings of FSDP, ask of the strategy of a training: values
// from which the library makes its own options. What it cannot do is refused here, so that the
// launcher and the workers say the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/sharding/deepspeed_plan.h"
#include "config/sharding/given_values.h"

namespace accelerate::config {

template <class T>
struct AskedValue {
  T value{};
  std::string place{};  // who gave it
};

// What nobody gave is nothing, and has the default of the library, not that of DeepSpeed. Sizes
// count numbers (elements), not bytes.
struct ShardingRequest {
  AskedValue<int> stage{};  // 0: nothing is sharded
  // Of stages 0 and 1: look in each pass for parameters that take no part in it. Without it one of
  // them is an error; the other stages let them be.
  bool looks_for_unused_parameters = false;
  std::optional<AskedValue<PlanDtype>> reduce_dtype{};  // if not float32
  std::optional<AskedValue<int64_t>> reduce_bucket{};
  // Of stage 3.
  std::optional<AskedValue<std::vector<std::string>>> unit_classes{};
  std::optional<AskedValue<int64_t>> unit_numel{};     // of the modules that become units, at least
  std::optional<AskedValue<PlanDtype>> param_dtype{};  // that modules compute with
  std::optional<AskedValue<int64_t>> persistence_threshold{};
  std::optional<AskedValue<int64_t>> max_live_parameters{};
  std::optional<AskedValue<int64_t>> max_reuse_distance{};
  std::optional<AskedValue<bool>> prefetches{};
  // Keys and settings that change nothing in this stage.
  std::vector<std::string> without_effect{};
};

// Sizes that are still "auto" count as not given. Throws ConfigError that names the key and its
// place for what this build cannot do, and what zero_plan() and precision_plan() throw.
ShardingRequest deepspeed_request(const DeepspeedDocument& document, int ranks);

// Whether sizes of zero_optimization are "auto", which the model decides.
bool has_open_sizes(const DeepspeedDocument& document);
// Fills them in for a model of that hidden size, or drops them where it has none.
void fill_sizes(DeepspeedDocument& document, std::optional<int64_t> hidden_size);

// The same for settings of FSDP; throws what fsdp_plan() throws too.
ShardingRequest fsdp_request(const GivenValues& given, int ranks);

}  // namespace accelerate::config
