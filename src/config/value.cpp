#include "config/value.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "accelerate/errors.h"
#include "base/nearest_name.h"
#include "base/printable_text.h"
#include "base/user_folders.h"
#include "base/word_list.h"
#include "config/capabilities.h"

namespace accelerate::config {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

bool is_one_of(std::string_view text, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return lower(word) == lower(text); });
}

[[noreturn]] void refuse_value(const Setting& setting, std::string_view text, const Source& source,
                               const std::string& allowed, std::string hint = {}) {
  throw ConfigError({.what = std::string(setting.name) + " cannot be '" + printable_text(text) +
                             "': it must be " + allowed,
                     .where = place_of(source),
                     .hint = std::move(hint)});
}

// "3", "1.5", without the zeros that std::to_string appends.
std::string plain_number(double number) {
  if (number == std::floor(number) && std::abs(number) < 1e15) {
    return std::to_string(static_cast<long long>(number));
  }
  std::string text = std::to_string(number);
  while (text.back() == '0') text.pop_back();
  return text;
}

std::string allowed_numbers(const Setting& setting) {
  std::string text = setting.kind == Kind::kInt ? "a whole number" : "a number";
  if (setting.unit == Unit::kSeconds) text += " of seconds";
  const bool has_least = std::isfinite(setting.least);
  const bool has_most = std::isfinite(setting.most);
  if (has_least && has_most) {
    text += " from " + plain_number(setting.least) + " to " + plain_number(setting.most);
  } else if (has_least) {
    text += " not below " + plain_number(setting.least);
  }
  if (!setting.words.empty()) text += ", or " + listed(setting.words, "or");
  return text;
}

// `text` without the + that it may begin with; std::from_chars knows none.
std::string_view without_plus(std::string_view text) {
  const bool has_plus = text.size() > 1 && text[0] == '+' && text[1] != '-';
  return has_plus ? text.substr(1) : text;
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  text = without_plus(text);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct TimeUnit {
  std::string_view name;
  double seconds;
};
constexpr std::array<TimeUnit, 19> kTimeUnits = {{{"ms", 0.001},
                                                  {"s", 1},
                                                  {"sec", 1},
                                                  {"secs", 1},
                                                  {"second", 1},
                                                  {"seconds", 1},
                                                  {"m", 60},
                                                  {"min", 60},
                                                  {"mins", 60},
                                                  {"minute", 60},
                                                  {"minutes", 60},
                                                  {"h", 3600},
                                                  {"hr", 3600},
                                                  {"hrs", 3600},
                                                  {"hour", 3600},
                                                  {"hours", 3600},
                                                  {"d", 86400},
                                                  {"day", 86400},
                                                  {"days", 86400}}};

// "600, which is 10min" for a time with a unit that the setting may have; "" for anything else.
std::string hint_on_time(const Setting& setting, std::string_view text) {
  if (setting.unit != Unit::kSeconds) return "";
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view unit = text.substr(digits);
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  const auto number = decimal_number(text.substr(0, digits));
  for (const TimeUnit& known : kTimeUnits) {
    if (!number || known.name != lower(unit)) continue;
    const double seconds = *number * known.seconds;
    if (seconds < setting.least || seconds > setting.most) return "";
    return plain_number(seconds) + ", which is " + printable_text(text);
  }
  return "";
}

std::string checked_number(const Setting& setting, std::string_view text, const Source& source) {
  if (is_one_of(text, setting.words)) return lower(text);
  const bool is_whole = setting.kind == Kind::kInt;
  const std::optional<int64_t> whole = is_whole ? whole_number(text) : std::nullopt;
  const std::optional<double> number =
      is_whole ? std::optional<double>(whole) : decimal_number(text);
  if (!number || *number < setting.least || *number > setting.most) {
    refuse_value(setting, text, source, allowed_numbers(setting), hint_on_time(setting, text));
  }
  if (whole) return std::to_string(*whole);
  const bool looks_whole = text.find_first_not_of("+-0123456789") == std::string_view::npos;
  // Python writes the whole number 1 of a float as 1.0, and so do the variables of workers.
  return std::string(without_plus(text)) + (looks_whole ? ".0" : "");
}

struct OtherWord {
  std::string_view setting;
  std::string_view word;  // in small letters
  std::string_view hint;
};

// Words that are no typing errors: other names of a choice.
constexpr std::array<OtherWord, 6> kOtherWords = {{
    {"mixed_precision", "fp32", "no: without mixed precision everything is computed in fp32"},
    {"mixed_precision", "float32", "no: without mixed precision everything is computed in float32"},
    {"mixed_precision", "float16", "fp16"},
    {"mixed_precision", "half", "fp16"},
    {"mixed_precision", "bfloat16", "bf16"},
    {"distributed_type", "ddp", "MULTI_GPU or MULTI_CPU, on which models are trained by DDP"},
}};

std::string hint_on_other_word(const Setting& setting, std::string_view text) {
  for (const OtherWord& other : kOtherWords) {
    if (other.setting == setting.name && other.word == lower(text)) return std::string(other.hint);
  }
  return "";
}

// What a refusal says of the choices. Those that this build lacks can be named in files that are
// read and converted, but nobody is told to try them.
std::string allowed_choices(const Setting& setting) {
  std::vector<std::string_view> present;
  std::vector<std::string_view> missing;
  for (const std::string_view choice : setting.choices) {
    (is_missing_choice(setting, choice) ? missing : present).push_back(choice);
  }
  if (missing.empty()) return listed(setting.choices, "or");
  return listed(present, "or") + " (" + listed(missing, "and") +
         (missing.size() == 1 ? " is" : " are") + " not part of this build)";
}

std::string checked_choice(const Setting& setting, std::string_view text, const Source& source) {
  if (auto choice = canonical_choice(setting, text)) return *std::move(choice);
  const bool takes_truth = is_one_of("true", setting.choices);
  if (const auto truth = truth_of(text); truth && takes_truth) return *truth ? "true" : "false";
  if (std::string hint = hint_on_other_word(setting, text); !hint.empty()) {
    refuse_value(setting, text, source, allowed_choices(setting), std::move(hint));
  }
  std::vector<std::string> names;
  for (const std::string_view choice : setting.choices) {
    if (!is_missing_choice(setting, choice)) names.emplace_back(choice);
  }
  const std::string nearest = nearest_name(lower(text), names);
  const std::string nearest_upper = nearest_name(upper(text), names);
  const std::string& best = nearest.empty() ? nearest_upper : nearest;
  refuse_value(setting, text, source, allowed_choices(setting), best.empty() ? "" : best + "?");
}

std::string checked_truths(const Setting& setting, std::string_view text, const Source& source) {
  std::string result;
  std::vector<std::string> parts = list_parts(text);
  if (parts.size() == 1) parts.assign(3, parts[0]);  // one for all
  for (const std::string& part : parts) {
    const auto truth = truth_of(part);
    if (!truth || parts.size() != 3) {
      refuse_value(setting, text, source, "three of true and false, separated by commas");
    }
    result += std::string(result.empty() ? "" : ",") + (*truth ? "true" : "false");
  }
  if (result.empty()) refuse_value(setting, text, source, "three of true and false");
  return result;
}

}  // namespace

std::string place_of(const Source& source) {
  if (source.kind == ValueSource::kVariable) return "environment variable " + source.where;
  return source.where;
}

std::optional<std::string> canonical_choice(const Setting& setting, std::string_view text) {
  const std::string word = lower(text);
  const bool is_passed_on = setting.file_key.starts_with("fp8_config.");
  for (const std::string_view choice : setting.choices) {
    if (lower(choice) == word) return std::string(is_passed_on ? text : choice);
  }
  if (setting.name == "distributed_type" && word == "tpu") return "XLA";
  return std::nullopt;
}

bool is_missing_choice(const Setting& setting, std::string_view choice) {
  if (setting.name == "distributed_type") {
    const auto capability = capability_of_type(choice);
    return capability && !is_in_this_build(*capability);
  }
  const CapabilityRow* row = setting.has_flag ? missing_for(setting, choice) : nullptr;
  return row != nullptr && row->setting == setting.name && !row->values.empty();
}

std::optional<bool> truth_of(std::string_view text) {
  const std::string word = lower(text);
  for (const char* yes : {"y", "yes", "t", "true", "on", "1"}) {
    if (word == yes) return true;
  }
  for (const char* no : {"n", "no", "f", "false", "off", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

std::optional<int64_t> whole_number(std::string_view text) { return parse_number<int64_t>(text); }

std::optional<double> decimal_number(std::string_view text) {
  const auto number = parse_number<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

bool is_gpu_list(std::string_view text) {
  const std::vector<std::string> parts = list_parts(text);
  return !parts.empty() && !text.ends_with(",") &&
         std::all_of(parts.begin(), parts.end(), [](const std::string& part) {
           const bool is_number = part.find_first_not_of("0123456789") == std::string::npos;
           return !part.empty() &&
                  (is_number || part.starts_with("GPU-") || part.starts_with("MIG-"));
         });
}

std::vector<std::string> list_parts(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    parts.emplace_back(part);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

std::string checked_value(const Setting& setting, std::string_view text, const Source& source) {
  switch (setting.kind) {
    case Kind::kSwitch:
    case Kind::kBool: {
      const auto truth = truth_of(text);
      if (!truth) refuse_value(setting, text, source, "true or false");
      return *truth ? "true" : "false";
    }
    case Kind::kInt:
    case Kind::kFloat:
      return checked_number(setting, text, source);
    case Kind::kChoice:
      return checked_choice(setting, text, source);
    case Kind::kList:
      return setting.spelling == Spelling::kTypedDigit ? checked_truths(setting, text, source)
                                                       : std::string(text);
    case Kind::kPath:
      // As a shell does it on a command line. What is passed on is for others to understand.
      return setting.effect == Effect::kUsed ? expanded_path(std::string(text)).string()
                                             : std::string(text);
    case Kind::kText:
      return std::string(text);
  }
  return std::string(text);
}

std::string spelled_value(const Setting& setting, std::string_view value, ValueSource source) {
  const auto truth =
      setting.kind == Kind::kSwitch || setting.kind == Kind::kBool ? truth_of(value) : std::nullopt;
  const char* in_python = truth.value_or(false) ? "True" : "False";
  const bool is_from_file = source == ValueSource::kFile;
  switch (setting.spelling) {
    case Spelling::kAsIs:
      return std::string(value);
    case Spelling::kLower:
      return lower(value);
    case Spelling::kUpper:
      return upper(value);
    case Spelling::kPython:
      return truth ? in_python : std::string(value);
    case Spelling::kDigit:
      return truth ? (*truth ? "1" : "0") : std::string(value);
    case Spelling::kTyped:
      return truth && is_from_file ? in_python : std::string(value);
    case Spelling::kTypedDigit:
      if (!truth) return std::string(value);
      return is_from_file ? in_python : *truth ? "1" : "0";
  }
  return std::string(value);
}

}  // namespace accelerate::config
