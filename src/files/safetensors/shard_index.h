// How a model is spread over several files, and the index (`model.safetensors.index.json`) that
// says which tensor is in which of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace accelerate::files {

struct ShardIndex {
  uint64_t total_size = 0;  // bytes of all tensors, what two of them share counted once
  std::map<std::string, std::string> weight_map{};  // tensor -> name of a file beside the index
};

// Reads the text of an index; the object around `weight_map` may be missing. Memory is bounded by a
// small multiple of the text's length.
//
// Throws CheckpointError, with `where` as its place, for a text that is no such JSON, a value that
// is no text, a tensor that is there twice, and the name of a file that is not a plain name: it
// must not lead out of the folder.
ShardIndex parse_shard_index(std::string_view text, const std::string& where);

// What becomes of a link in the folder of a model.
enum class Links {
  kInside,    // it must lead to a file of the folder
  kFollowed,  // it may lead anywhere, as in the cache of the Hugging Face hub
};

// Throws CheckpointError unless `file` is a regular file of the folder, or a link to one that is
// allowed. `where` is its place: the index that names the file, or the folder.
void check_model_file(const std::filesystem::path& folder, const std::string& file,
                      const std::filesystem::path& where, Links links);

// Reads the index and checks every file that it names as check_model_file() does. Throws
// CheckpointError as above, and for a file that is missing.
ShardIndex read_shard_index(const std::filesystem::path& path, Links links = Links::kInside);

// The text of an index as Python writes it: sorted, indented by two, ASCII, with a newline at the
// end. Throws UsageError for a name that is not valid UTF-8.
std::string shard_index_text(const ShardIndex& index);

struct ShardedTensor {
  std::string name;
  uint64_t bytes = 0;
  // Tensors with equal numbers share their memory: they stay in one shard and count once.
  std::optional<uint64_t> storage{};
};

struct Shard {
  std::string file{};
  std::vector<std::string> tensors{};
};

struct ShardPlan {
  std::vector<Shard> shards{};  // one at least
  uint64_t total_size = 0;
  // The largest tensor that is larger than a shard should be; none: all shards are as asked for.
  std::optional<ShardedTensor> too_large{};
  size_t too_large_tensors = 0;  // how many there are of those
  bool is_sharded() const { return shards.size() > 1; }
};

// Spreads tensors over files of at most `max_bytes` each, in their order; a larger tensor has a
// file of its own, numbered before the one that is being filled. `stem` and `suffix` make the
// names: "model" and ".safetensors" give model-00001-of-00002.safetensors.
ShardPlan plan_shards(const std::vector<ShardedTensor>& tensors, uint64_t max_bytes,
                      std::string_view stem, std::string_view suffix);

// Whether a file of that name belongs to a model saved under that stem and suffix: the one file,
// a shard of whatever number, or the index.
bool is_model_file(std::string_view file, std::string_view stem, std::string_view suffix);

}  // namespace accelerate::files
