#include "files/checkpoint_names.h"

#include <charconv>
#include <random>

#include "files/checksum.h"

namespace accelerate::files {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr std::string_view kSetAsideMark = ".old-";
static_assert(kTemporaryMark.size() == kSetAsideMark.size());
constexpr size_t kDigits = 16;

std::string_view mark_of(HiddenKind kind) {
  return kind == HiddenKind::kTemporary ? kTemporaryMark : kSetAsideMark;
}

}  // namespace

std::string numbered_name(int64_t number) {
  return std::string(kSeries) + "_" + std::to_string(number);
}

std::optional<SeriesName> series_name(std::string_view name) {
  const size_t bar = name.rfind('_');
  if (bar == std::string_view::npos || bar == 0) return std::nullopt;
  const std::string_view digits = name.substr(bar + 1);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (std::to_string(number) != digits || number < 0) return std::nullopt;
  return SeriesName{std::string(name.substr(0, bar)), number};
}

std::optional<HiddenName> hidden_name(std::string_view name) {
  const size_t tail = kTemporaryMark.size() + kDigits;
  if (name.size() < 2 + tail || name.front() != '.') return std::nullopt;
  if (!parse_checksum(name.substr(name.size() - kDigits))) return std::nullopt;
  const std::string checkpoint(name.substr(1, name.size() - 1 - tail));
  const std::string_view mark = name.substr(name.size() - tail, kTemporaryMark.size());
  if (mark == kTemporaryMark) return HiddenName{HiddenKind::kTemporary, checkpoint};
  if (mark == kSetAsideMark) return HiddenName{HiddenKind::kSetAside, checkpoint};
  return std::nullopt;
}

std::string make_hidden_name(HiddenKind kind, std::string_view checkpoint) {
  std::random_device random;
  const uint64_t number = uint64_t{random()} << 32 | random();
  return "." + std::string(checkpoint) + std::string(mark_of(kind)) + checksum_text(number);
}

std::string lock_name(std::string_view checkpoint) {
  const auto series = series_name(checkpoint);
  return "." + (series ? series->series : std::string(checkpoint)) + ".lock";
}

}  // namespace accelerate::files
