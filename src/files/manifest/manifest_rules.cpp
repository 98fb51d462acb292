#include "files/manifest/manifest_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "accelerate/errors.h"
#include "base/printable_text.h"

namespace accelerate::files {
namespace {

constexpr uint64_t kMaxFileBytes = std::numeric_limits<int64_t>::max();
constexpr int64_t kYear10000 = 253402300800;  // in seconds since 1970
constexpr size_t kMaxManifestDimensions = 64;
constexpr int64_t kMaxRanks = int64_t{1} << 20;  // more than any job has; fits an int

void require(bool holds, const std::string& what, const std::string& where) {
  if (!holds) refuse_manifest(what, where);
}

bool is_shape(const std::vector<int64_t>& shape) {
  return shape.size() <= kMaxManifestDimensions &&
         std::all_of(shape.begin(), shape.end(), [](int64_t size) { return size >= 0; });
}

bool is_shard(const ShardRecord& shard, const std::vector<int64_t>& shape) {
  if (shard.global_shape.size() != shape.size() || shard.start.size() != shape.size()) return false;
  if (!is_shape(shard.global_shape) || !is_shape(shard.start)) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] > shard.global_shape[i]) return false;
    if (shard.start[i] > shard.global_shape[i] - shape[i]) return false;
  }
  return true;
}

void check_tensor(const PartRecord& part, const std::string& part_text, const std::string& where) {
  if (part.dtype.empty()) {
    require(part.shape.empty() && !part.shard, part_text + " has a shape but no dtype", where);
    return;
  }
  require(part.dtype.size() <= 32 && is_printable_ascii(part.dtype),
          part_text + " has a dtype that is not a name", where);
  require(is_shape(part.shape), part_text + " has an impossible shape", where);
  require(!part.shard || is_shard(*part.shard, part.shape),
          part_text + " does not lie inside its global shape", where);
}

void check_file(const FileRecord& file, const std::string& where) {
  require(is_plain_name(file.name) && file.name != kManifestName,
          "a file of the checkpoint cannot be named \"" + file.name + "\"", where);
  require(file.bytes <= kMaxFileBytes, file.name + " has an impossible size", where);
  std::set<std::string_view> names;
  uint64_t end = 0;
  for (const PartRecord& part : file.parts) {
    const std::string part_text = file.name + ", part " + part.name;
    require(names.insert(part.name).second, part_text + " is listed twice", where);
    require(part.offset >= end, part_text + " begins before the end of the part before it", where);
    require(part.offset <= file.bytes && part.bytes <= file.bytes - part.offset,
            part_text + " ends after the end of its file", where);
    end = part.offset + part.bytes;
    check_tensor(part, part_text, where);
  }
}

// Throws for what JSON text cannot hold (nlohmann would write null for a NaN), and beyond `depth`.
void check_state(const nlohmann::json& value, int depth, const std::string& where) {
  require(!value.is_binary() && !value.is_discarded(), "the state holds bytes", where);
  require(!value.is_number_float() || std::isfinite(value.get<double>()),
          "the state holds a number that is not finite", where);
  if (!value.is_structured()) return;
  require(depth > 0, "the state is nested too deeply", where);
  for (const nlohmann::json& inner : value) check_state(inner, depth - 1, where);
}

}  // namespace

void refuse_manifest(const std::string& what, const std::string& where) {
  throw CheckpointError(
      {.what = printable_text(what), .where = where, .hint = "use another checkpoint"});
}

void check_records(std::span<const FileRecord> records, const std::string& where) {
  std::set<std::string_view> names;
  for (const FileRecord& file : records) {
    check_file(file, where);
    require(names.insert(file.name).second, file.name + " is listed twice", where);
  }
}

void check_manifest(const Manifest& manifest, const std::string& where) {
  require(manifest.library_version.size() <= 64 && is_printable_ascii(manifest.library_version),
          "the version of the library is not one", where);
  require(manifest.world_size >= 1, "the world size is below 1", where);
  require(manifest.world_size <= kMaxRanks, "the world size is impossible", where);
  require(manifest.step >= 0, "the step is negative", where);
  require(manifest.created >= 0 && manifest.created < kYear10000, "the time is impossible", where);
  require(manifest.state.is_object(), "the state is not an object", where);
  check_state(manifest.state, kMaxManifestDepth - 1, where);
  check_records(manifest.files, where);
}

}  // namespace accelerate::files
