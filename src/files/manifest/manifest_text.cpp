// Writing a manifest: one line a file and a part, so that people can read it and diff it.
#include <chrono>
#include <cstdio>

#include "accelerate/errors.h"
#include "files/durable/checksum.h"
#include "files/manifest/manifest.h"
#include "files/manifest/manifest_format.h"
#include "files/manifest/manifest_rules.h"

namespace accelerate::files {
namespace {

// Numbers and strings as JSON. Throws nlohmann::json::exception for strings that are not valid
// UTF-8.
template <typename T>
std::string json_of(const T& value) {
  return nlohmann::json(value).dump();
}

std::string part_text(const PartRecord& part) {
  std::string text = "{\"name\": " + json_of(part.name);
  if (!part.dtype.empty()) {
    text += ", \"dtype\": " + json_of(part.dtype) + ", \"shape\": " + json_of(part.shape);
  }
  if (part.shard) {
    text += ", \"shard\": {\"global_shape\": " + json_of(part.shard->global_shape) +
            ", \"start\": " + json_of(part.shard->start) + "}";
  }
  return text + ", \"offset\": " + json_of(part.offset) + ", \"bytes\": " + json_of(part.bytes) +
         ", \"checksum\": \"" + checksum_text(part.checksum) + "\"}";
}

// Lines are separated by `newline`: nothing of it for a text in one line.
std::string file_text(const FileRecord& file, const std::string& newline) {
  std::string text = "{\"name\": " + json_of(file.name) + ", \"bytes\": " + json_of(file.bytes) +
                     ", \"checksum\": \"" + checksum_text(file.checksum) + "\", \"parts\": [";
  for (const PartRecord& part : file.parts) {
    if (&part != &file.parts.front()) text += ",";
    text += newline + part_text(part);
  }
  return text + "]}";
}

std::string files_text(std::span<const FileRecord> files, const std::string& newline) {
  std::string text = "[";
  for (const FileRecord& file : files) {
    if (&file != &files.front()) text += ",";
    text += newline + file_text(file, newline);
  }
  return text + "]";
}

std::string time_text(int64_t seconds) {
  using namespace std::chrono;  // NOLINT(google-build-using-namespace): its operators and units
  const sys_seconds time{std::chrono::seconds(seconds)};
  const sys_days day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  return text;
}

// Runs what makes JSON; strings that JSON cannot hold are the caller's mistake.
template <typename Make>
std::string make_text(Make make, const std::string& where) {
  try {
    return make();
  } catch (const nlohmann::json::exception& error) {
    refuse_manifest(std::string("a name or the state is not text in UTF-8: ") + error.what(),
                    where);
  }
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  const std::string where(kManifestName);
  check_manifest(manifest, where);
  std::string text = make_text(
      [&] {
        return "{\n\"format\": \"" + std::string(kManifestFormat) +
               "\",\n\"version\": " + json_of(kManifestVersion) +
               ",\n\"library_version\": " + json_of(manifest.library_version) +
               ",\n\"world_size\": " + json_of(manifest.world_size) +
               ",\n\"step\": " + json_of(manifest.step) + ",\n\"created\": \"" +
               time_text(manifest.created) + "\",\n\"state\": " + manifest.state.dump() +
               ",\n\"files\": " + files_text(manifest.files, "\n");
      },
      where);
  if (text.size() + kManifestTailBytes > kMaxManifestBytes) {
    refuse_manifest("the manifest is larger than " + std::to_string(kMaxManifestBytes) + " bytes",
                    where);
  }
  return text + manifest_tail(text);
}

std::string records_text(std::span<const FileRecord> records) {
  const std::string where = "the records of a rank";
  check_records(records, where);
  return make_text([&] { return files_text(records, ""); }, where);
}

}  // namespace accelerate::files
