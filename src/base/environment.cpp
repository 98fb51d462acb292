#include "base/environment.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "accelerate/errors.h"

namespace accelerate {

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

bool parse_flag(const char* name, const std::string& text) {
  std::string word = text;
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* yes : {"y", "yes", "t", "true", "on", "1"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"n", "no", "f", "false", "off", "0"}) {
    if (word == no) return false;
  }
  throw ConfigError({.what = std::string(name) + "='" + text + "' is neither yes nor no",
                     .where = std::string("environment variable ") + name,
                     .hint = "use true or false"});
}

bool environment_flag(const char* name) {
  const auto text = environment_variable(name);
  return text && !text->empty() && parse_flag(name, *text);
}

}  // namespace accelerate
