#include "files/manifest/checkpoint_names.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/random_id.h"
#include "files/durable/checksum.h"
#include "files/manifest/manifest.h"

namespace accelerate::files {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr std::string_view kSetAsideMark = ".old-";
static_assert(kTemporaryMark.size() == kSetAsideMark.size());
constexpr size_t kMarkDigits = 16;

constexpr std::string_view kModelPieces = "model_pieces";
constexpr std::string_view kPiecesExtension = ".safetensors";

// Stem and extension; numbers follow the stem after a bar.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kStateFiles{{
    {"model", ".safetensors"},
    {kModelPieces, kPiecesExtension},
    {"pytorch_model", ".bin"},
    {"optimizer", ".bin"},
    {"optimizer_pieces", ".safetensors"},
    {"scheduler", ".bin"},
    {"sampler", ".bin"},
    {"rank_state", ".bin"},
    {"scaler", ".pt"},
    {"random_states", ".pkl"},
    {"custom_checkpoint", ".pkl"},
}};

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

bool is_state_file(std::string_view name) {
  if (name == kManifestName) return true;
  return std::ranges::any_of(kStateFiles, [&](const auto& file) {
    const auto& [stem, extension] = file;
    if (!name.ends_with(extension)) return false;
    const std::string_view bare = name.substr(0, name.size() - extension.size());
    const auto numbered = series_name(bare);
    return bare == stem || (numbered && numbered->series == stem);
  });
}

std::string model_pieces_file(int rank) {
  return std::string(kModelPieces) + "_" + std::to_string(rank) + std::string(kPiecesExtension);
}

bool is_model_pieces_file(std::string_view name) {
  if (!name.ends_with(kPiecesExtension)) return false;
  name.remove_suffix(kPiecesExtension.size());
  const auto numbered = series_name(name);
  return numbered && numbered->series == kModelPieces;
}

std::string to_string(const ModelPieceName& piece) {
  return std::to_string(piece.model) + "." + std::to_string(piece.box) + "." + piece.tensor;
}

bool take_number(std::string_view& name, size_t& number) {
  const size_t dot = name.find('.');
  if (dot == name.npos) return false;
  const auto [rest, error] = std::from_chars(name.data(), name.data() + dot, number);
  if (error != std::errc() || rest != name.data() + dot) return false;
  name.remove_prefix(dot + 1);
  return true;
}

std::optional<ModelPieceName> model_piece_name(std::string_view name) {
  ModelPieceName parsed;
  if (!take_number(name, parsed.model) || !take_number(name, parsed.box)) return std::nullopt;
  parsed.tensor = name;
  return parsed;
}

std::optional<HiddenName> hidden_name(std::string_view name) {
  const size_t tail = kTemporaryMark.size() + kMarkDigits;
  if (name.size() < 2 + tail || name.front() != '.') return std::nullopt;
  if (!parse_checksum(name.substr(name.size() - kMarkDigits))) return std::nullopt;
  const std::string checkpoint(name.substr(1, name.size() - 1 - tail));
  const std::string_view mark = name.substr(name.size() - tail, kTemporaryMark.size());
  if (mark == kTemporaryMark) return HiddenName{HiddenKind::kTemporary, checkpoint};
  if (mark == kSetAsideMark) return HiddenName{HiddenKind::kSetAside, checkpoint};
  return std::nullopt;
}

std::string make_hidden_name(HiddenKind kind, std::string_view checkpoint) {
  return "." + std::string(checkpoint) + std::string(mark_of(kind)) + random_id();
}

std::string lock_name(std::string_view checkpoint) {
  const auto series = series_name(checkpoint);
  return "." + (series ? series->series : std::string(checkpoint)) + ".lock";
}

}  // namespace accelerate::files
