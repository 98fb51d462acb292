#include "config/fsdp2.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace accelerate::config {
namespace {

constexpr std::array<std::string_view, 4> kRemoved = {
    "fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_sync_module_states",
    "fsdp_use_orig_params"};

bool is_removed(std::string_view key) {
  return std::find(kRemoved.begin(), kRemoved.end(), key) != kRemoved.end();
}

// What a strategy of version 1 means for version 2; other values stay.
FileNode reshard_value(const FileNode& value) {
  for (const char* full : {"FULL_SHARD", "HYBRID_SHARD"}) {
    if (value.text == full) return FileNode::plain("true");
  }
  for (const char* kept : {"SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2", "NO_SHARD"}) {
    if (value.text == kept) return FileNode::plain("false");
  }
  return value;
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
        "of "
        "version 1, set fsdp_version to 1 first");
    return result;
  }
  FileNode converted = FileNode::map();
  for (const FileEntry& entry : fsdp->entries) {
    if (is_removed(entry.key)) {
      result.notes.push_back(entry.key + " is dropped: version 2 does not have it");
    } else if (entry.key == "fsdp_sharding_strategy" || entry.key == "fsdp_reshard_after_forward") {
      converted.set("fsdp_reshard_after_forward", reshard_value(entry.value));
    } else {
      converted.set(entry.key, entry.value);
    }
  }
  converted.set("fsdp_version", FileNode::plain("2"));
  result.document.set("fsdp_config", std::move(converted));
  return result;
}

}  // namespace accelerate::config
