#include <algorithm>
#include <unordered_map>
#include <utility>

#include "files/safetensors/shard_index.h"

namespace accelerate::files {
namespace {

std::string five_digits(size_t number) {
  std::string digits = std::to_string(number);
  if (digits.size() < 5) digits.insert(0, 5 - digits.size(), '0');
  return digits;
}

bool is_number(std::string_view text) {
  return text.size() >= 5 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

ShardPlan plan_shards(const std::vector<ShardedTensor>& tensors, uint64_t max_bytes,
                      std::string_view stem, std::string_view suffix) {
  ShardPlan plan;
  std::vector<size_t> open;  // positions of the tensors in the shard that is being filled
  uint64_t open_bytes = 0;
  std::vector<std::vector<size_t>> shards;
  // First tensor of a storage -> the others.
  std::unordered_map<uint64_t, size_t> first_of_storage;
  std::unordered_map<size_t, std::vector<size_t>> sharing;

  for (size_t i = 0; i < tensors.size(); ++i) {
    const ShardedTensor& tensor = tensors[i];
    if (tensor.storage) {
      const auto [first, is_new] = first_of_storage.emplace(*tensor.storage, i);
      if (!is_new) {
        sharing[first->second].push_back(i);
        continue;
      }
    }
    plan.total_size += tensor.bytes;
    if (tensor.bytes > max_bytes) {
      ++plan.too_large_tensors;
      if (!plan.too_large || tensor.bytes > plan.too_large->bytes) plan.too_large = tensor;
      shards.push_back({i});
      continue;
    }
    if (tensor.bytes > max_bytes - open_bytes) {
      shards.push_back(std::exchange(open, {}));
      open_bytes = 0;
    }
    open.push_back(i);
    open_bytes += tensor.bytes;
  }
  if (!open.empty() || shards.empty()) shards.push_back(std::move(open));

  for (size_t number = 0; number < shards.size(); ++number) {
    Shard shard;
    shard.file = stem;
    if (shards.size() > 1) {
      shard.file += "-" + five_digits(number + 1) + "-of-" + five_digits(shards.size());
    }
    shard.file += suffix;
    for (const size_t i : shards[number]) shard.tensors.push_back(tensors[i].name);
    for (const size_t i : shards[number]) {
      const auto others = sharing.find(i);
      if (others == sharing.end()) continue;
      for (const size_t other : others->second) shard.tensors.push_back(tensors[other].name);
    }
    plan.shards.push_back(std::move(shard));
  }
  return plan;
}

bool is_model_file(std::string_view file, std::string_view stem, std::string_view suffix) {
  if (!file.starts_with(stem)) return false;
  file.remove_prefix(stem.size());
  if (file == suffix) return true;
  if (file.starts_with(suffix)) return file.substr(suffix.size()) == ".index.json";
  if (!file.starts_with('-') || !file.ends_with(suffix)) return false;
  file.remove_prefix(1);
  file.remove_suffix(suffix.size());
  constexpr std::string_view kOf = "-of-";
  const size_t of = file.find(kOf);
  return of != file.npos && is_number(file.substr(0, of)) &&
         is_number(file.substr(of + kOf.size()));
}

}  // namespace accelerate::files
