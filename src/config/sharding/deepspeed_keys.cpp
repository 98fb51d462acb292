#include "config/sharding/deepspeed_keys.h"

#include <algorithm>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "base/nearest_name.h"

namespace accelerate::config {
namespace {

constexpr size_t kTypingErrors = 2;  // letters by which a mistyped key differs
constexpr std::string_view kWholeSection = ".*";

// "tensorboard" of "tensorboard.*"; the path of other rows as it is.
std::string_view plain_path(const DeepspeedKey& key) {
  std::string_view path = key.path;
  if (path.ends_with(kWholeSection)) path.remove_suffix(kWholeSection.size());
  return path;
}

const DeepspeedKey* row_of(const std::string& path) {
  const auto rows = deepspeed_keys();
  const auto found =
      std::ranges::find_if(rows, [&](const DeepspeedKey& key) { return plain_path(key) == path; });
  return found == rows.end() ? nullptr : &*found;
}

// Whether rows lie below `path`, as they do below zero_optimization.
bool is_section_of_rows(const std::string& path) {
  return std::ranges::any_of(deepspeed_keys(), [&](const DeepspeedKey& key) {
    return key.path.starts_with(path + ".") && plain_path(key) != path;
  });
}

bool is_disabled(const nlohmann::json& section) {
  const auto enabled = section.find("enabled");
  return enabled == section.end() || enabled->is_null() || *enabled == false;
}

bool is_off(const nlohmann::json& value, KeyOff off) {
  if (value.is_null()) return true;
  switch (off) {
    case KeyOff::kFalse:
      return value == false;
    case KeyOff::kTrue:
      return value == true;
    case KeyOff::kDisabled:
      return value == false || (value.is_object() && is_disabled(value));
    case KeyOff::kAtMostOne:
      return value == 0 || value == 1;
    case KeyOff::kMean:
      return value == "mean";
    case KeyOff::kAbsent:
      return false;
  }
  return false;
}

// The names that may stand in the section `path`.
std::vector<std::string> names_in(const std::string& path) {
  const std::string prefix = path.empty() ? "" : path + ".";
  std::vector<std::string> names;
  for (const DeepspeedKey& key : deepspeed_keys()) {
    std::string_view rest = plain_path(key);
    if (!rest.starts_with(prefix) || rest.size() == prefix.size()) continue;
    rest.remove_prefix(prefix.size());
    const std::string name(rest.substr(0, rest.find('.')));
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

class KeyWalk {
 public:
  explicit KeyWalk(const DeepspeedDocument& document) : document_(document) {}

  void section(const nlohmann::json& values, const std::string& path) {
    for (const auto& [name, value] : values.items()) {
      entry(value, path, name, path.empty() ? name : path + "." + name);
    }
  }

  std::vector<std::string> take() { return std::move(without_effect_); }

 private:
  void entry(const nlohmann::json& value, const std::string& section_path, const std::string& name,
             const std::string& path) {
    // "zero_optimization.stage" as one name would be taken for what it is not.
    if (name.find('.') != name.npos && row_of(path) != nullptr) {
      throw ConfigError(
          {.what = "a DeepSpeed configuration cannot have " + shortened(path) + " as one key",
           .where = document_.name,
           .hint = "write an object inside an object"});
    }
    const DeepspeedKey* row = row_of(path);
    const bool has_rows = is_section_of_rows(path);
    // A tree of keys that are known one by one, like zero_optimization, or all but a few of them.
    if (has_rows && value.is_object()) return section(value, path);
    if (row != nullptr) return known(value, *row, path);
    if (has_rows) return;  // whoever reads the section says that it must be an object
    unknown(section_path, name, path);
  }

  void known(const nlohmann::json& value, const DeepspeedKey& row, const std::string& path) {
    if (row.effect == KeyEffect::kUsed || value.is_null()) return;
    if (row.effect == KeyEffect::kRefused && !is_off(value, row.off)) {
      throw ConfigError({.what = path + " is not available here: " + std::string(row.about),
                         .where = document_.place_of(path),
                         .hint = "take it out of the DeepSpeed configuration"});
    }
    // What is switched off asks for nothing.
    const bool is_from_here = document_.places.contains(path);  // nobody asked for it
    if (row.effect == KeyEffect::kNoEffect && !is_from_here) without_effect_.push_back(path);
  }

  void unknown(const std::string& section_path, const std::string& name, const std::string& path) {
    // In tensor_parallel.* all others may stand too.
    if (row_of(section_path) != nullptr) return without_effect_.push_back(path);
    const bool is_top = section_path.empty();
    const std::vector<std::string> names = names_in(section_path);
    const std::string nearest =
        is_top ? nearest_name(name, names, kTypingErrors) : nearest_name(name, names);
    if (is_top && nearest.empty()) return without_effect_.push_back(shortened(path));
    const std::string inside = is_top ? "" : " in " + section_path;
    throw ConfigError(
        {.what = "DeepSpeed configurations have no key " + shortened(name) + inside,
         .where = document_.name,
         .hint = nearest.empty() ? "docs/deepspeed.md lists the keys" : nearest + "?"});
  }

  const DeepspeedDocument& document_;
  std::vector<std::string> without_effect_;
};

}  // namespace

std::vector<std::string> keys_without_effect(const DeepspeedDocument& document) {
  KeyWalk walk(document);
  walk.section(document.values, "");
  std::vector<std::string> keys = walk.take();
  keys.insert(keys.end(), document.without_effect.begin(), document.without_effect.end());
  std::ranges::sort(keys);
  return keys;
}

}  // namespace accelerate::config
