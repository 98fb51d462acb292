// Files, texts and base64 of DeepSpeed's JSON.
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "accelerate/errors.h"
#include "base/printable_text.h"
#include "config/sharding/deepspeed_document.h"
#include "files/strict_json.h"

namespace accelerate::config {
namespace {

constexpr size_t kLongestDeepspeedFile = 1 << 20;

std::string file_text(const std::filesystem::path& path) {
  std::error_code no_file;
  if (std::filesystem::is_directory(path, no_file)) {
    throw ConfigError({.what = "'" + path.string() + "' is a folder, not a DeepSpeed configuration",
                       .hint = "name a file in it"});
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(kLongestDeepspeedFile + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || !stream.is_open()) {
    throw ConfigError({.what = std::string("the file cannot be read: ") + std::strerror(errno),
                       .where = path.string()});
  }
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kLongestDeepspeedFile) {
    throw ConfigError({.what = "the file is larger than 1 MiB, which no DeepSpeed configuration is",
                       .where = path.string()});
  }
  return text;
}

// The value of a digit of base64, in the alphabet with + and / or the one with - and _.
std::optional<uint32_t> base64_digit(char letter) {
  if (letter >= 'A' && letter <= 'Z') return static_cast<uint32_t>(letter - 'A');
  if (letter >= 'a' && letter <= 'z') return static_cast<uint32_t>(letter - 'a' + 26);
  if (letter >= '0' && letter <= '9') return static_cast<uint32_t>(letter - '0' + 52);
  if (letter == '+' || letter == '-') return 62;
  if (letter == '/' || letter == '_') return 63;
  return std::nullopt;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char letter : text) {
    const auto digit = base64_digit(letter);
    if (!digit) return std::nullopt;
    bits = (bits << 6) | *digit;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>((bits >> count) & 0xff);
  }
  return bytes;
}

bool is_path_of_a_file(const std::string& source) {
  std::error_code no_file;
  return source.find('\0') == source.npos && std::filesystem::exists(source, no_file);
}

}  // namespace

DeepspeedDocument parse_deepspeed(std::string_view text, const std::string& name) {
  const auto refuse = [&name](const std::string& what) {
    throw ConfigError({.what = what, .where = name});
  };
  DeepspeedDocument document;
  document.values = files::parse_json_object(
      text, {.not_json =
                 [&](const std::string& complaint) {
                   refuse("the DeepSpeed configuration is not valid JSON: " + complaint);
                 },
             .not_acceptable =
                 [&](const std::string& what) {
                   refuse("this is not a DeepSpeed configuration: " + what);
                 }});
  document.name = name;
  return document;
}

DeepspeedDocument read_deepspeed(const std::string& source) {
  if (is_path_of_a_file(source)) return parse_deepspeed(file_text(source), source);
  const size_t first = source.find_first_not_of(" \t\r\n");
  if (first != source.npos && source[first] == '{') {
    return parse_deepspeed(source, "the DeepSpeed configuration given as text");
  }
  if (const auto decoded = from_base64(source)) {
    return parse_deepspeed(*decoded, "the DeepSpeed configuration given in base64");
  }
  throw ConfigError(
      {.what = "'" + printable_text(source) + "' is neither a file, nor JSON, nor JSON in base64",
       .where = "deepspeed_config_file",
       .hint = "name an existing file with DeepSpeed's settings as JSON"});
}

}  // namespace accelerate::config
