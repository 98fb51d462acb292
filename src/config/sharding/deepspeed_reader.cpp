// Files, texts and base64 of DeepSpeed's JSON.
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"
#include "base/printable_text.h"
#include "config/sharding/deepspeed_document.h"
#include "files/json_tree.h"

namespace accelerate::config {
namespace {

using files::JsonTree;
using nlohmann::json;

constexpr size_t kLongestDeepspeedFile = 1 << 20;

// Takes the events of nlohmann's parser.
class DeepspeedEvents {
 public:
  explicit DeepspeedEvents(const std::string& name) : name_(name) {}

  json take() { return tree_.take(); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(INT64_MAX)) refuse_range(std::to_string(value));
    return put(static_cast<int64_t>(value));
  }
  bool number_float(double value, const std::string& text) {
    if (!std::isfinite(value) || text.find_first_of(".eE") == text.npos) refuse_range(text);
    return put(value);
  }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(json::binary_t& /*value*/) { refuse("it holds binary data"); }
  bool start_object(size_t /*size*/) { return open(json::object()); }
  bool end_object() { return close(); }
  bool start_array(size_t /*size*/) { return open(json::array()); }
  bool end_array() { return close(); }
  bool key(std::string& key) {
    if (tree_.has(key)) refuse("it has the key " + in_quotes(key) + " twice");
    tree_.key(std::move(key));
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/, const std::exception& error) {
    throw ConfigError({.what = "the DeepSpeed configuration is not valid JSON: " +
                               json_complaint(error, position),
                       .where = name_});
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError({.what = "this is not a DeepSpeed configuration: " + what, .where = name_});
  }
  [[noreturn]] void refuse_range(const std::string& text) const {
    refuse("the number " + shortened(text) + " is out of range");
  }

  bool put(json value) {
    if (tree_.is_at_top()) refuse("it is not an object");
    tree_.put(std::move(value));
    return true;
  }

  bool open(json value) {
    if (tree_.is_at_top() && value.is_array()) refuse("it is a list, not an object");
    if (tree_.is_full()) {
      refuse("it is nested deeper than " + std::to_string(JsonTree::kDeepest) + " levels");
    }
    tree_.open(std::move(value));
    return true;
  }

  bool close() {
    tree_.close();
    return true;
  }

  const std::string& name_;
  JsonTree tree_;
};

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
  DeepspeedEvents events(name);
  json::sax_parse(text.begin(), text.end(), &events);
  DeepspeedDocument document;
  document.values = events.take();
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
