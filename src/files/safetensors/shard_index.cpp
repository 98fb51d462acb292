#include "files/safetensors/shard_index.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "files/safetensors/mapped_checkpoint.h"
#include "files/safetensors/shard_index_reading.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;

// An index has about a hundred bytes a tensor.
constexpr uint64_t kMaxIndexBytes = 100'000'000;

[[noreturn]] void refuse_index(const fs::path& path, const std::string& what,
                               const std::string& hint) {
  throw CheckpointError({.what = what, .where = path.string(), .hint = hint});
}

}  // namespace

ShardIndex parse_shard_index(std::string_view text, const std::string& where) {
  // The parser would take it for the end of the text.
  if (text.find('\0') != text.npos) {
    refuse_index(where, "this is not a valid index of model files: it has a byte 0",
                 "save or download the model again");
  }
  ShardIndexEvents events(where);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

void check_model_file(const fs::path& folder, const std::string& file, const fs::path& where,
                      Links links) {
  const std::string subject =
      "the file " + in_quotes(file) + (where == folder ? "" : ", which the index names,");
  std::error_code error;
  const fs::path inside = fs::canonical(folder.empty() ? "." : folder, error);
  const fs::path path = error ? fs::path() : fs::canonical(inside / file, error);
  if (error) {
    refuse_index(where, subject + " cannot be opened: " + error.message(),
                 "copy all files of the model into the folder");
  }
  const auto [end, rest] = std::mismatch(inside.begin(), inside.end(), path.begin(), path.end());
  if (end != inside.end() && links == Links::kInside) {
    refuse_index(where, subject + " is a link out of the folder",
                 "copy the file itself into the folder, or set follow_links (--follow_links on the "
                 "command line) if you trust its source");
  }
  if (!fs::is_regular_file(path, error)) {
    refuse_index(where, subject + " is not a regular file",
                 "copy all files of the model into the folder");
  }
}

ShardIndex read_shard_index(const fs::path& path, Links links) {
  const auto mapped = map_checkpoint_file(path, "the index of model files");
  if (mapped->size() > kMaxIndexBytes) {
    refuse_index(
        path,
        "this is not an index of model files: it has " + std::to_string(mapped->size()) + " bytes",
        "name the index of a sharded model");
  }
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes as text
  const std::string_view text(reinterpret_cast<const char*>(mapped->data()), mapped->size());
  ShardIndex index = parse_shard_index(text, path.string());

  std::set<std::string_view> files;
  for (const auto& [tensor, file] : index.weight_map) files.insert(file);
  for (const std::string_view file : files) {
    check_model_file(path.parent_path(), std::string(file), path, links);
  }
  return index;
}

std::string shard_index_text(const ShardIndex& index) {
  const nlohmann::json json = {{"metadata", {{"total_size", index.total_size}}},
                               {"weight_map", index.weight_map}};
  try {
    constexpr int kIndent = 2;
    constexpr bool kAscii = true;
    return json.dump(kIndent, ' ', kAscii) + '\n';
  } catch (const nlohmann::json::type_error& error) {
    throw UsageError(
        {.what = "the name of a tensor is not valid UTF-8, which an index of files needs: " +
                 shortened(error.what()),
         .hint = "rename it"});
  }
}

}  // namespace accelerate::files
