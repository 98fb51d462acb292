// Reading a manifest: first that all of it is there, then JSON, then every key.
#include <charconv>
#include <chrono>
#include <set>

#include "accelerate/errors.h"
#include "files/durable/checksum.h"
#include "files/manifest/manifest.h"
#include "files/manifest/manifest_format.h"
#include "files/manifest/manifest_rules.h"

namespace accelerate::files {
namespace {

using nlohmann::json;

// Takes the keys of an object one by one; those that nobody took are refused.
class ObjectReader {
 public:
  ObjectReader(const json& object, std::string subject, const std::string& where)
      : object_(object), subject_(std::move(subject)), where_(where) {
    if (!object.is_object()) refuse_manifest(subject_ + " is not an object", where);
  }

  const json* find(const char* key) {
    const auto found = object_.find(key);
    if (found == object_.end()) return nullptr;
    ++taken_;
    return &*found;
  }

  const json& take(const char* key) {
    const json* value = find(key);
    if (value == nullptr) refuse_manifest(subject_ + " has no \"" + key + "\"", where_);
    return *value;
  }

  const std::string& text(const char* key) {
    const json& value = take(key);
    if (!value.is_string()) refuse(key, "is not a string");
    return value.get_ref<const std::string&>();
  }

  uint64_t count(const char* key) {
    const json& value = take(key);
    if (!value.is_number_unsigned()) refuse(key, "is not a whole number of zero or more");
    return value.get<uint64_t>();
  }

  int64_t integer(const char* key) {
    const uint64_t value = count(key);
    if (value > static_cast<uint64_t>(INT64_MAX)) refuse(key, "is too large");
    return static_cast<int64_t>(value);
  }

  uint64_t checksum(const char* key) {
    const auto value = parse_checksum(text(key));
    if (!value) refuse(key, "is not 16 hexadecimal digits");
    return *value;
  }

  std::vector<int64_t> shape(const char* key) {
    std::vector<int64_t> sizes;
    for (const json& size : array(key)) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        refuse(key, "holds something that is not a size");
      }
      sizes.push_back(size.get<int64_t>());
    }
    return sizes;
  }

  const json& array(const char* key) {
    const json& value = take(key);
    if (!value.is_array()) refuse(key, "is not an array");
    return value;
  }

  // To be called when all keys that may be there were asked for.
  void finish() const {
    if (taken_ != object_.size()) refuse_manifest(subject_ + " has an unknown key", where_);
  }

  [[noreturn]] void refuse(const char* key, const std::string& problem) const {
    refuse_manifest("\"" + std::string(key) + "\" of " + subject_ + " " + problem, where_);
  }

 private:
  const json& object_;
  std::string subject_;
  const std::string& where_;
  size_t taken_ = 0;
};

// JSON with the limits that nlohmann's parser does not have: of depth, and of each key only once.
json parse_json(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string, std::less<>>> keys;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxManifestDepth) refuse_manifest("it is nested too deeply", where);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) {
        refuse_manifest("the key \"" + key + "\" appears twice", where);
      }
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& error) {
    refuse_manifest(std::string("this is not valid JSON: ") + error.what(), where);
  }
}

PartRecord read_part(const json& value, const std::string& file, const std::string& where) {
  ObjectReader object(value, "a part of " + file, where);
  PartRecord part;
  part.name = object.text("name");
  part.offset = object.count("offset");
  part.bytes = object.count("bytes");
  part.checksum = object.checksum("checksum");
  if (object.find("dtype") != nullptr) {
    part.dtype = value.at("dtype").is_string() ? value.at("dtype").get<std::string>() : "";
    if (part.dtype.empty()) object.refuse("dtype", "is not a name");
    part.shape = object.shape("shape");
  }
  if (const json* shard = object.find("shard")) {
    ObjectReader place(*shard, "the shard of " + part.name, where);
    part.shard = ShardRecord{place.shape("global_shape"), place.shape("start")};
    place.finish();
  }
  object.finish();
  return part;
}

FileRecord read_file(const json& value, const std::string& where) {
  ObjectReader object(value, "a file", where);
  FileRecord file;
  file.name = object.text("name");
  file.bytes = object.count("bytes");
  file.checksum = object.checksum("checksum");
  for (const json& part : object.array("parts")) {
    file.parts.push_back(read_part(part, file.name, where));
  }
  object.finish();
  return file;
}

// The seconds since 1970 of exactly YYYY-MM-DDThh:mm:ssZ.
std::optional<int64_t> parse_time(std::string_view text) {
  constexpr std::string_view kPattern = "dddd-dd-ddTdd:dd:ddZ";
  if (text.size() != kPattern.size()) return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool fits =
        kPattern[i] == 'd' ? text[i] >= '0' && text[i] <= '9' : text[i] == kPattern[i];
    if (!fits) return std::nullopt;
  }
  const auto number = [&](size_t begin, size_t count) {
    unsigned value = 0;
    std::from_chars(text.data() + begin, text.data() + begin + count, value);
    return value;
  };
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(number(0, 4))),
                                         std::chrono::month(number(5, 2)),
                                         std::chrono::day(number(8, 2)));
  const unsigned hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  if (!date.ok() || hour > 23 || minute > 59 || second > 59) return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return ((days * 24 + hour) * 60 + minute) * 60 + second;
}

// Throws unless the manifest ends with the checksum of what is before it.
void check_seal(std::string_view text, const std::string& where) {
  if (text.size() > kMaxManifestBytes) refuse_manifest("the manifest is too large", where);
  if (text.size() < kManifestTailBytes || !text.ends_with(kManifestEnd) ||
      !text.substr(text.size() - kManifestTailBytes).starts_with(kManifestSeal)) {
    refuse_manifest("the manifest is truncated, or was not written by Accelerate", where);
  }
  const std::string_view body = text.substr(0, text.size() - kManifestTailBytes);
  if (text.substr(body.size()) != manifest_tail(body)) {
    refuse_manifest("the manifest is damaged: its checksum does not match", where);
  }
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::filesystem::path& path) {
  const std::string where = path.string();
  check_seal(text, where);
  const json value = parse_json(text, where);
  ObjectReader object(value, "the manifest", where);
  if (object.text("format") != kManifestFormat) object.refuse("format", "is unknown");
  if (const uint64_t version = object.count("version"); version != kManifestVersion) {
    throw CheckpointError({.what = "the checkpoint has format version " + std::to_string(version) +
                                   ", this library reads version " +
                                   std::to_string(kManifestVersion),
                           .where = where,
                           .hint = "use the version of the library that wrote it, or a newer one"});
  }
  Manifest manifest;
  manifest.library_version = object.text("library_version");
  manifest.world_size = object.integer("world_size");
  manifest.step = object.integer("step");
  const auto created = parse_time(object.text("created"));
  if (!created) object.refuse("created", "is not a time");
  manifest.created = *created;
  manifest.state = object.take("state");
  for (const json& file : object.array("files")) manifest.files.push_back(read_file(file, where));
  object.take("checksum");
  object.finish();
  check_manifest(manifest, where);
  return manifest;
}

std::vector<FileRecord> parse_records(std::string_view text, const std::string& where) {
  const json value = parse_json(text, where);
  if (!value.is_array()) refuse_manifest("the records are not an array", where);
  std::vector<FileRecord> records;
  for (const json& file : value) records.push_back(read_file(file, where));
  check_records(records, where);
  return records;
}

}  // namespace accelerate::files
