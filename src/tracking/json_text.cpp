#include "tracking/json_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace accelerate::tracking {
namespace {

std::string shortest(double number) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  return {digits.data(), end};
}

std::string_view not_finite(double number) {
  if (std::isnan(number)) return "NaN";
  return number > 0 ? "Infinity" : "-Infinity";
}

}  // namespace

void append_json_number(std::string& json, double number) {
  if (!std::isfinite(number)) {
    json += '"';
    json += not_finite(number);
    json += '"';
    return;
  }
  const std::string digits = shortest(number);
  json += digits;
  if (digits.find_first_of(".e") == std::string::npos) json += ".0";
}

void append_json_value(std::string& json, const TrackedValue& value) {
  if (const auto* group = value.group()) {
    json += '{';
    for (const auto& [name, number] : *group) {
      append_json_key(json, name);
      append_json_number(json, number);
    }
    json += '}';
  } else if (const auto* text = value.text()) {
    append_json_text(json, *text);
  } else if (const auto* flag = std::get_if<bool>(&value.get())) {
    json += *flag ? "true" : "false";
  } else if (const auto* integer = std::get_if<int64_t>(&value.get())) {
    json += std::to_string(*integer);
  } else {
    append_json_number(json, std::get<double>(value.get()));
  }
}

void append_json_key(std::string& json, std::string_view name) {
  if (!json.empty() && std::string_view("{[,").find(json.back()) == std::string_view::npos) {
    json += ',';
  }
  append_json_text(json, name);
  json += ':';
}

void append_json_member(std::string& json, std::string_view name, const TrackedValue& value) {
  append_json_key(json, name);
  append_json_value(json, value);
}

std::string json_object(const TrackerConfig& values) {
  std::string json = "{";
  for (const NamedValue& value : values) append_json_member(json, value.name, value.value);
  return json + "}";
}

std::string plain_text(const TrackedValue& value) {
  if (const std::string* text = value.text()) return *text;
  if (const auto* real = std::get_if<double>(&value.get())) {
    if (!std::isfinite(*real)) return std::string(not_finite(*real));
  }
  std::string json;
  append_json_value(json, value);
  return json;
}

std::string python_number(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  std::array<char, 400> digits{};
  const double size = std::abs(number);
  const bool in_places = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto form = in_places ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, form).ptr;
  std::string text(digits.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

namespace {

std::string yaml_number(double number) {
  if (std::isnan(number)) return ".nan";
  if (std::isinf(number)) return number > 0 ? ".inf" : "-.inf";
  std::string text = python_number(number);
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

// Whether a text stands for itself without quotes. Cautious: what is not surely a word is quoted.
bool is_plain_in_yaml(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto is_plain = [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '/';
  };
  if (text.empty() || !is_letter(text.front())) return false;
  if (!std::ranges::all_of(text, is_plain)) return false;
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  constexpr std::array<std::string_view, 9> kWordsOfYaml = {"y",     "n",  "yes", "no",  "true",
                                                            "false", "on", "off", "null"};
  return std::ranges::find(kWordsOfYaml, lower) == kWordsOfYaml.end();
}

std::string yaml_text(std::string_view text) {
  if (is_plain_in_yaml(text)) return std::string(text);
  const bool is_simple = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
  std::string quoted;
  if (!is_simple) {  // a text of JSON is one of YAML
    append_json_text(quoted, text);
    return quoted;
  }
  for (const char c : text) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return "'" + quoted + "'";
}

std::string yaml_value(const TrackedValue& value) {
  if (const std::string* text = value.text()) return yaml_text(*text);
  if (const auto* real = std::get_if<double>(&value.get())) return yaml_number(*real);
  return plain_text(value);
}

}  // namespace

std::string yaml_document(TrackerConfig values) {
  std::ranges::sort(values, {}, &NamedValue::name);
  if (values.empty()) return "{}\n";
  std::string document;
  for (const NamedValue& entry : values) {
    document += yaml_text(entry.name) + ":";
    const TrackedGroup* group = entry.value.group();
    if (group == nullptr) {
      document += ' ' + yaml_value(entry.value) + '\n';
      continue;
    }
    document += '\n';
    for (const auto& [name, number] : *group) {
      document += "  " + yaml_text(name) + ": " + yaml_number(number) + '\n';
    }
  }
  return document;
}

}  // namespace accelerate::tracking
