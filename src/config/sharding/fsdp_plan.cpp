#include "config/sharding/fsdp_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::config {
namespace {

constexpr std::array<std::string_view, 2> kFsdpVersions = {"1", "2"};
constexpr std::array<std::string_view, 10> kFsdpShardings = {"FULL_SHARD",
                                                             "SHARD_GRAD_OP",
                                                             "NO_SHARD",
                                                             "HYBRID_SHARD",
                                                             "HYBRID_SHARD_ZERO2",
                                                             "1",
                                                             "2",
                                                             "3",
                                                             "4",
                                                             "5"};
constexpr size_t kFsdpShardingCount = 5;
constexpr std::array<std::string_view, 3> kWrapPolicies = {"NO_WRAP", "TRANSFORMER_BASED_WRAP",
                                                           "SIZE_BASED_WRAP"};
constexpr std::array<std::string_view, 3> kStateDictTypes = {
    "FULL_STATE_DICT", "SHARDED_STATE_DICT", "LOCAL_STATE_DICT"};
constexpr std::array<std::string_view, 3> kBackwardPrefetches = {"NO_PREFETCH", "BACKWARD_PRE",
                                                                 "BACKWARD_POST"};

FsdpSharding given_sharding(std::string_view setting, const GivenValue& value) {
  return static_cast<FsdpSharding>(given_choice(setting, value, kFsdpShardings) %
                                   kFsdpShardingCount);
}

bool is_sharding_name(const GivenValue& value) {
  for (const std::string_view name : kFsdpShardings) {
    if (name.size() > 1 && given_matches(value, name)) return true;
  }
  return false;
}

bool reshards(FsdpSharding sharding) {
  return sharding == FsdpSharding::kFull || sharding == FsdpSharding::kHybrid;
}

bool is_hybrid(FsdpSharding sharding) {
  return sharding == FsdpSharding::kHybrid || sharding == FsdpSharding::kHybridGradients;
}

std::vector<std::string> class_names(const std::string& text) {
  std::vector<std::string> names;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view name = std::string_view(text).substr(begin, end - begin);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    if (!name.empty()) names.emplace_back(name);
    begin = end + 1;
  }
  return names;
}

class FsdpReading {
 public:
  explicit FsdpReading(const GivenValues& given) : given_(given) {}

  FsdpPlan take() {
    if (const auto version = given_("fsdp_version")) {
      plan_.version = 1 + static_cast<int>(given_choice("fsdp_version", *version, kFsdpVersions));
    }
    read_mesh();
    if (plan_.version == 1) {
      read_sharding();
    } else {
      read_resharding();
    }
    read_units();
    read_flag("fsdp_offload_params", plan_.offload_params);
    read_flag("fsdp_cpu_ram_efficient_loading", plan_.cpu_ram_efficient_loading);
    read_flag("fsdp_activation_checkpointing", plan_.activation_checkpointing);
    read_flag("fsdp_activation_checkpointing_offload", plan_.activation_offload);
    if (const auto modules = given_("fsdp_ignored_modules")) plan_.ignored_modules = modules->text;
    read_sync();
    read_state_dict_type();
    read_idle();
    return std::move(plan_);
  }

 private:
  void read_flag(std::string_view setting, bool& flag) const {
    if (const auto value = given_(setting)) flag = given_flag(setting, *value);
  }

  void read_mesh() {
    const auto read = [&](std::string_view setting, int64_t& size) {
      if (const auto value = given_(setting)) size = given_integer(setting, *value, 1);
    };
    read("parallelism_config_dp_shard_size", plan_.shard_size);
    read("parallelism_config_dp_replicate_size", plan_.replicas);
  }

  // Version 1: a strategy, which fsdp_reshard_after_forward may name too.
  void read_sharding() {
    const auto strategy = given_("fsdp_sharding_strategy");
    const auto reshard = given_("fsdp_reshard_after_forward");
    if (strategy) plan_.sharding = given_sharding("fsdp_sharding_strategy", *strategy);
    if (reshard && is_sharding_name(*reshard)) {
      const FsdpSharding named = given_sharding("fsdp_reshard_after_forward", *reshard);
      // The launcher tells workers FULL_SHARD where nobody gave a strategy.
      if (plan_.sharding == FsdpSharding::kFull) plan_.sharding = named;
      if (plan_.sharding != named && named != FsdpSharding::kFull) {
        refuse_contradiction("fsdp_sharding_strategy is " + strategy->text +
                                 ", but fsdp_reshard_after_forward is " + reshard->text,
                             strategy->place, reshard->place, "leave one of them out");
      }
    } else if (reshard && !given_flag("fsdp_reshard_after_forward", *reshard)) {
      throw ConfigError({.what =
                             "fsdp_reshard_after_forward is false, which version 1 of FSDP does "
                             "not have: it takes a strategy",
                         .where = reshard->place,
                         .hint = "fsdp_sharding_strategy: SHARD_GRAD_OP, or fsdp_version: 2"});
    }
    plan_.reshard_after_forward = reshards(plan_.sharding);
  }

  // Version 2: whether parameters are sharded again between forward and backward.
  void read_resharding() {
    const auto reshard = given_("fsdp_reshard_after_forward");
    if (reshard && is_sharding_name(*reshard)) {
      throw ConfigError({.what = "fsdp_reshard_after_forward is " + reshard->text +
                                 ": in version 2 of FSDP it must be true or false",
                         .where = reshard->place,
                         .hint = "accelerate to-fsdp2 converts a file of version 1"});
    }
    if (reshard) {
      plan_.reshard_after_forward = given_flag("fsdp_reshard_after_forward", *reshard);
    }
    const bool is_hybrid_mesh = plan_.replicas > 1;
    plan_.sharding =
        plan_.reshard_after_forward
            ? (is_hybrid_mesh ? FsdpSharding::kHybrid : FsdpSharding::kFull)
            : (is_hybrid_mesh ? FsdpSharding::kHybridGradients : FsdpSharding::kGradients);
    const auto strategy = given_("fsdp_sharding_strategy");
    if (strategy) check_strategy_of_version_1(*strategy, reshard);
  }

  // A strategy that means the same is let pass, as is FULL_SHARD, which the launcher tells workers
  // where nobody gave one.
  void check_strategy_of_version_1(const GivenValue& strategy,
                                   const std::optional<GivenValue>& reshard) const {
    const FsdpSharding said = given_sharding("fsdp_sharding_strategy", strategy);
    if (said == FsdpSharding::kFull || said == plan_.sharding) return;
    const std::string what =
        "fsdp_sharding_strategy is " + strategy.text + ", which version 2 of FSDP does not read";
    const char* hint = "fsdp_reshard_after_forward: false, as accelerate to-fsdp2 writes it";
    if (is_hybrid(said)) hint = "parallelism_config with dp_replicate_size and dp_shard_size";
    if (said == FsdpSharding::kNone) hint = "leave FSDP out: every rank then holds the whole model";
    if (reshard) refuse_contradiction(what, strategy.place, reshard->place, hint);
    throw ConfigError({.what = what, .where = strategy.place, .hint = hint});
  }

  void read_units() {
    const auto policy = given_("fsdp_auto_wrap_policy");
    if (policy) {
      plan_.units =
          static_cast<FsdpUnits>(given_choice("fsdp_auto_wrap_policy", *policy, kWrapPolicies));
    }
    if (const auto least = given_("fsdp_min_num_params")) {
      plan_.min_num_params = given_integer("fsdp_min_num_params", *least, 0);
    }
    const auto classes = given_("fsdp_transformer_layer_cls_to_wrap");
    if (!classes) return;
    plan_.unit_classes = class_names(classes->text);
    if (plan_.units == FsdpUnits::kByClass || plan_.unit_classes.empty()) return;
    const std::string what =
        "fsdp_transformer_layer_cls_to_wrap names classes, but "
        "fsdp_auto_wrap_policy is " +
        (policy ? policy->text : "not given");
    const std::string hint = "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP";
    if (policy) refuse_contradiction(what, classes->place, policy->place, hint);
    throw ConfigError({.what = what, .where = classes->place, .hint = hint});
  }

  void read_sync() {
    const auto sync = given_("fsdp_sync_module_states");
    if (!sync) return;
    const bool is_on = given_flag("fsdp_sync_module_states", *sync);
    if (plan_.version == 2) {
      if (!is_on) note("fsdp_sync_module_states", *sync);
      return;
    }
    plan_.sync_module_states = is_on;
    if (is_on || !plan_.cpu_ram_efficient_loading) return;
    const auto loading = given_("fsdp_cpu_ram_efficient_loading");
    const std::string what =
        "fsdp_cpu_ram_efficient_loading needs fsdp_sync_module_states: the "
        "other ranks get their weights from rank 0";
    const std::string hint = "fsdp_cpu_ram_efficient_loading: false";
    if (loading) refuse_contradiction(what, sync->place, loading->place, hint);
    throw ConfigError({.what = what, .where = sync->place, .hint = hint});
  }

  void read_state_dict_type() {
    constexpr size_t kLocal = 2;
    const auto type = given_("fsdp_state_dict_type");
    if (!type) return;
    const size_t kind = given_choice("fsdp_state_dict_type", *type, kStateDictTypes);
    if (kind == kLocal && plan_.version == 2) {
      throw ConfigError({.what = "version 2 of FSDP does not have LOCAL_STATE_DICT",
                         .where = type->place,
                         .hint = "fsdp_state_dict_type: SHARDED_STATE_DICT"});
    }
    note("fsdp_state_dict_type", *type);
  }

  // What is checked and decided by the library itself.
  void read_idle() {
    if (const auto prefetch = given_("fsdp_backward_prefetch")) {
      given_choice("fsdp_backward_prefetch", *prefetch, kBackwardPrefetches);
      note("fsdp_backward_prefetch", *prefetch);
    }
    note_unless("fsdp_forward_prefetch", false);
    note_unless("fsdp_use_orig_params", true);
  }

  // Workers are told the usual value too.
  void note_unless(std::string_view setting, bool usual) {
    const auto value = given_(setting);
    if (value && given_flag(setting, *value) != usual) note(setting, *value);
  }

  void note(std::string_view setting, const GivenValue& value) {
    plan_.without_effect.push_back(std::string(setting) + " (" + value.place + ")");
  }

  const GivenValues& given_;
  FsdpPlan plan_;
};

}  // namespace

FsdpPlan fsdp_plan(const GivenValues& given) { return FsdpReading(given).take(); }

}  // namespace accelerate::config
