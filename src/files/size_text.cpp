#include "files/size_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "accelerate/errors.h"
#include "base/message_text.h"

namespace accelerate::files {
namespace {

struct Unit {
  std::string_view name;  // in capital letters
  double bytes;
};

constexpr std::array<Unit, 8> kShardUnits{{{"TIB", 0x1p40},
                                           {"GIB", 0x1p30},
                                           {"MIB", 0x1p20},
                                           {"KIB", 0x1p10},
                                           {"TB", 1e12},
                                           {"GB", 1e9},
                                           {"MB", 1e6},
                                           {"KB", 1e3}}};
// The longer names first: "GIB" ends like none of the shorter ones, but is to be seen as a whole.
constexpr std::array<Unit, 6> kMemoryUnits{
    {{"GIB", 0x1p30}, {"MIB", 0x1p20}, {"KIB", 0x1p10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}}};

bool ends_with_unit(std::string_view text, std::string_view unit) {
  if (text.size() < unit.size()) return false;
  text.remove_prefix(text.size() - unit.size());
  for (size_t i = 0; i < unit.size(); ++i) {
    const char capital =
        text[i] >= 'a' && text[i] <= 'z' ? static_cast<char>(text[i] - 32) : text[i];
    if (capital != unit[i]) return false;
  }
  return true;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n\r\f\v";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Whole bytes, rounded down; none for a text that is not a number, and for one that is negative or
// beyond what can be counted.
std::optional<uint64_t> scaled(std::string_view number, double unit) {
  number = trimmed(number);
  if (number.starts_with('+')) {
    number.remove_prefix(1);
    if (number.starts_with('-')) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  const double bytes = std::trunc(value * unit);
  if (!(bytes >= 0 && bytes < 0x1p63)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

[[noreturn]] void refuse_size(std::string_view text, const std::string& hint) {
  throw UsageError({.what = in_quotes(text) + " is not a size", .hint = hint});
}

}  // namespace

uint64_t parse_shard_size(std::string_view text) {
  const std::string_view size = trimmed(text);
  for (const Unit& unit : kShardUnits) {
    if (!ends_with_unit(size, unit.name)) continue;
    if (const auto bytes = scaled(size.substr(0, size.size() - unit.name.size()), unit.bytes)) {
      return *bytes;
    }
  }
  refuse_size(
      text,
      "write a number and KB, MB, GB or TB, or KiB to TiB: \"500MB\", \"2GiB\"; a number of "
      "bytes is an integer in the program, not a string");
}

uint64_t parse_memory_size(std::string_view text) {
  for (const Unit& unit : kMemoryUnits) {
    if (!ends_with_unit(text, unit.name)) continue;
    const auto size = scaled(text.substr(0, text.size() - unit.name.size()), unit.bytes);
    if (!size) break;
    return unit.name.size() == 2 && text.ends_with('b') ? *size / 8 : *size;
  }
  refuse_size(text, "write a number and KB, MB, GB, KiB, MiB or GiB: \"5GB\"");
}

}  // namespace accelerate::files
