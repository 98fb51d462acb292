#include "config/fsdp2.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate::config {
namespace {

constexpr std::array<std::string_view, 4> kRemoved = {
    "fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_sync_module_states",
    "fsdp_use_orig_params"};

// In any case.
bool has_name(std::string_view text, std::string_view name) {
  return std::ranges::equal(text, name, [](unsigned char a, unsigned char b) {
    return std::toupper(a) == std::toupper(b);
  });
}

bool is_removed(std::string_view key) {
  return std::find(kRemoved.begin(), kRemoved.end(), key) != kRemoved.end();
}

constexpr const char* kStrategyKey = "fsdp_sharding_strategy";
constexpr const char* kReshardKey = "fsdp_reshard_after_forward";

constexpr const char* kAlwaysShards =
    "version 2 always shards; leave FSDP out for whole models on every rank";
constexpr const char* kReplicasByMesh =
    "version 2 takes replicas from parallelism_config_dp_replicate_size";

struct StrategyOfVersion1 {
  const char* name;
  const char* number;
  bool reshards;
  const char* lost;  // what version 2 does otherwise; "": nothing
};
constexpr std::array<StrategyOfVersion1, 5> kStrategiesOfVersion1 = {{
    {"FULL_SHARD", "1", true, ""},
    {"SHARD_GRAD_OP", "2", false, ""},
    {"NO_SHARD", "3", false, kAlwaysShards},
    {"HYBRID_SHARD", "4", true, kReplicasByMesh},
    {"HYBRID_SHARD_ZERO2", "5", false, kReplicasByMesh},
}};

// nullptr for another text.
const StrategyOfVersion1* strategy_named(const FileNode& value) {
  for (const StrategyOfVersion1& strategy : kStrategiesOfVersion1) {
    if (has_name(value.text, strategy.name) || value.text == strategy.number) return &strategy;
  }
  return nullptr;
}

// What a strategy of version 1 means for version 2; other values stay.
FileNode reshard_value(const FileNode& value) {
  const StrategyOfVersion1* strategy = strategy_named(value);
  return strategy == nullptr ? value : FileNode::plain(strategy->reshards ? "true" : "false");
}

// Which of the two keys version 1 goes by, where both stand: the strategy. Throws ConfigError if
// the other one names another strategy.
bool is_second_to_strategy(const FileNode& fsdp, std::string_view key) {
  const FileNode* strategy = fsdp.find(kStrategyKey);
  const FileNode* reshard = fsdp.find(kReshardKey);
  if (key != kReshardKey || strategy == nullptr || reshard == nullptr) return false;
  const StrategyOfVersion1* other = strategy_named(*reshard);
  if (other != nullptr && other != strategy_named(*strategy)) {
    throw ConfigError({.what = std::string(kStrategyKey) + " is " + strategy->text + ", but " +
                               kReshardKey + " is " + reshard->text,
                       .where = "fsdp_config",
                       .hint = "leave one of them out"});
  }
  return true;
}

}  // namespace

Fsdp2Conversion to_fsdp2(FileNode document) {
  Fsdp2Conversion result{.document = std::move(document)};
  const FileNode* fsdp = result.document.find("fsdp_config");
  if (fsdp == nullptr || fsdp->entries.empty()) {
    result.notes.emplace_back("the file has no fsdp_config: there is nothing to convert");
    return result;
  }
  const FileNode* version = fsdp->find("fsdp_version");
  if (version != nullptr && version->text == "2") {
    result.notes.emplace_back(
        "fsdp_config is already of version 2: there is nothing to convert; if its keys are those "
        "of version 1, set fsdp_version to 1 first");
    return result;
  }
  FileNode converted = FileNode::map();
  for (const FileEntry& entry : fsdp->entries) {
    if (is_removed(entry.key)) {
      result.notes.push_back(entry.key + " is dropped: version 2 does not have it");
    } else if (is_second_to_strategy(*fsdp, entry.key)) {
      continue;
    } else if (entry.key == kStrategyKey || entry.key == kReshardKey) {
      converted.set(kReshardKey, reshard_value(entry.value));
      const StrategyOfVersion1* strategy = strategy_named(entry.value);
      if (strategy != nullptr && strategy->lost[0] != '\0') {
        result.notes.push_back(std::string(strategy->name) + ": " + strategy->lost);
      }
    } else {
      converted.set(entry.key, entry.value);
    }
  }
  converted.set("fsdp_version", FileNode::plain("2"));
  result.document.set("fsdp_config", std::move(converted));
  return result;
}

}  // namespace accelerate::config
