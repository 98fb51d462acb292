#include "files/shard_index.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "accelerate/errors.h"
#include "files/json_text.h"
#include "files/mapped_checkpoint.h"
#include "files/shard_index_reading.h"

namespace accelerate::files {
namespace {

namespace fs = std::filesystem;

// An index has about a hundred bytes a tensor.
constexpr uint64_t kMaxIndexBytes = 100'000'000;

[[noreturn]] void refuse(const fs::path& path, const std::string& what, const std::string& hint) {
  throw CheckpointError({.what = what, .where = path.string(), .hint = hint});
}

// `folder` is canonical.
void check_file(const fs::path& folder, const std::string& file, const fs::path& index) {
  std::error_code error;
  const fs::path path = fs::canonical(folder / file, error);
  if (error) {
    refuse(index,
           "the file " + in_quotes(file) +
               ", which the index names, cannot be opened: " + error.message(),
           "copy all files of the model into the folder");
  }
  const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  if (end != folder.end()) {
    refuse(index,
           "the file " + in_quotes(file) + ", which the index names, is a link out of the folder",
           "copy the file itself into the folder");
  }
  if (!fs::is_regular_file(path, error)) {
    refuse(index, "the file " + in_quotes(file) + ", which the index names, is not a regular file",
           "copy all files of the model into the folder");
  }
}

}  // namespace

ShardIndex parse_shard_index(std::string_view text, const std::string& where) {
  // The parser would take it for the end of the text.
  if (text.find('\0') != text.npos) {
    refuse(where, "this is no valid index of model files: it has a byte 0",
           "save or download the model again");
  }
  ShardIndexEvents events(where);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

ShardIndex read_shard_index(const fs::path& path) {
  const auto mapped = map_checkpoint_file(path, "the index of model files");
  if (mapped->size() > kMaxIndexBytes) {
    refuse(path,
           "this is no index of model files: it has " + std::to_string(mapped->size()) + " bytes",
           "name the index of a sharded model");
  }
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): bytes as text
  const std::string_view text(reinterpret_cast<const char*>(mapped->data()), mapped->size());
  ShardIndex index = parse_shard_index(text, path.string());

  const fs::path folder = fs::canonical(fs::absolute(path).parent_path());
  std::set<std::string_view> files;
  for (const auto& [tensor, file] : index.weight_map) files.insert(file);
  for (const std::string_view file : files) check_file(folder, std::string(file), path);
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
    throw UsageError({.what = "the name of a tensor is not UTF-8, which an index of files needs: " +
                              shortened(error.what()),
                      .hint = "rename it"});
  }
}

}  // namespace accelerate::files
