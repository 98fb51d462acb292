#include "accelerate/mixed_precision.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "accelerate/errors.h"

namespace accelerate {
namespace {

using Word = std::pair<std::string_view, MixedPrecision::Value>;

// In the order of the enumerators.
constexpr std::array<Word, 4> kNames{{{"no", MixedPrecision::kNo},
                                      {"fp16", MixedPrecision::kFp16},
                                      {"bf16", MixedPrecision::kBf16},
                                      {"fp8", MixedPrecision::kFp8}}};

// What others call them, where a typing error does not explain the word.
constexpr std::array<Word, 11> kOtherNames{{{"none", MixedPrecision::kNo},
                                            {"off", MixedPrecision::kNo},
                                            {"false", MixedPrecision::kNo},
                                            {"fp32", MixedPrecision::kNo},
                                            {"float32", MixedPrecision::kNo},
                                            {"half", MixedPrecision::kFp16},
                                            {"float16", MixedPrecision::kFp16},
                                            {"f16", MixedPrecision::kFp16},
                                            {"bfloat16", MixedPrecision::kBf16},
                                            {"float8", MixedPrecision::kFp8},
                                            {"f8", MixedPrecision::kFp8}}};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower;
}

template <class Words>
std::optional<MixedPrecision::Value> look_up(const Words& words, std::string_view name) {
  const auto found = std::ranges::find(words, name, &Word::first);
  if (found == words.end()) return std::nullopt;
  return found->second;
}

// How many letters two short words do not share: "bf61" has the letters of "bf16".
size_t letters_apart(std::string_view a, std::string_view b) {
  std::string left(a);
  size_t missing = 0;
  for (const char letter : b) {
    const size_t position = left.find(letter);
    if (position == std::string::npos) {
      ++missing;
    } else {
      left.erase(position, 1);
    }
  }
  return missing + left.size();
}

// The known name that is meant by `name`, or "" if none is near.
std::string_view meant_by(const std::string& name) {
  if (const auto value = look_up(kOtherNames, name)) return kNames[*value].first;
  std::string_view nearest;
  size_t smallest = 3;
  for (const auto& [known, value] : kNames) {
    if (value == MixedPrecision::kFp8) continue;  // config/capabilities.h says why
    const size_t apart = letters_apart(name, known);
    if (apart < smallest) {
      smallest = apart;
      nearest = known;
    }
  }
  return nearest;
}

std::string hint_for(const std::string& name) {
  const std::string_view meant = meant_by(name);
  if (meant.empty()) return "one of no, fp16, bf16";
  return "'" + std::string(meant) + "' (known: no, fp16, bf16)";
}

ErrorInfo unknown(std::string_view name, std::string where) {
  return {.what = "unknown mixed precision '" + std::string(name) + "'",
          .where = std::move(where),
          .hint = hint_for(lower_case(name))};
}

}  // namespace

MixedPrecision::MixedPrecision(std::string_view name) : value_(kNo) {
  const auto value = look_up(kNames, lower_case(name));
  if (!value) throw UsageError(unknown(name, "mixed_precision"));
  value_ = *value;
}

std::string_view MixedPrecision::name() const { return kNames[value_].first; }

std::optional<c10::ScalarType> MixedPrecision::autocast_type() const {
  switch (value_) {
    case kNo:
      return std::nullopt;
    case kFp16:
      return c10::ScalarType::Half;
    case kBf16:
    case kFp8:
      return c10::ScalarType::BFloat16;
  }
  return std::nullopt;
}

MixedPrecision resolve_mixed_precision(const std::optional<MixedPrecision>& asked_for,
                                       const EnvironmentLookup& lookup) {
  constexpr const char* kVariable = "ACCELERATE_MIXED_PRECISION";
  if (asked_for) return *asked_for;
  const auto text = lookup(kVariable);
  if (!text || text->empty()) return MixedPrecision::kNo;
  const auto value = look_up(kNames, lower_case(*text));
  if (!value) throw ConfigError(unknown(*text, kVariable));
  return *value;
}

}  // namespace accelerate
