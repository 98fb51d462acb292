// A configuration file is refused with a ConfigError that can be printed, or it reads the same
// after it was written again, as YAML and as JSON.
#include <map>
#include <optional>
#include <string>

#include "accelerate/errors.h"
#include "check.h"
#include "config/config_file.h"
#include "config/file_node.h"
#include "config/settings.h"

namespace {

using namespace accelerate::config;  // NOLINT(google-build-using-namespace): a small program

void check_message(const accelerate::Error& error) {
  FUZZ_CHECK(!error.message().empty() && error.message().size() < 1000);
  for (const std::string& text : {error.message(), error.where(), error.hint()}) {
    for (const char c : text) {
      FUZZ_CHECK(static_cast<unsigned char>(c) >= ' ' && c != 0x7f);
    }
  }
}

template <typename Step>
auto result_of(Step step) -> std::optional<decltype(step())> {
  try {
    return step();
  } catch (const accelerate::ConfigError& error) {
    check_message(error);
    return std::nullopt;
  }
}

std::optional<ConfigFile> file_of(const std::string& text) {
  return result_of([&] { return interpret_config(parse_config_text(text, "file"), "file"); });
}

// What the file says, in any order.
std::map<const Setting*, std::string> values_of(const ConfigFile& file) {
  std::map<const Setting*, std::string> values;
  for (const FileValue& value : file.values) values[value.setting] = value.text;
  return values;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto file = file_of(text);
  if (!file) return 0;
  const auto document = result_of([&] { return complete_document(*file); });
  if (!document) return 0;
  const std::string yaml = yaml_text(*document);
  const auto again = file_of(yaml);
  FUZZ_CHECK(again.has_value());
  FUZZ_CHECK(yaml_text(complete_document(*again)) == yaml);
  const auto as_json = file_of(json_text(*document));
  FUZZ_CHECK(as_json.has_value());
  FUZZ_CHECK(values_of(*as_json) == values_of(*again));

  result_of([&] {
    return resolve_settings({.flags = {},
                             .variable = [](const std::string&) { return std::nullopt; },
                             .file = &*file,
                             .gpus = 2});
  });
  return 0;
}
