// Names in a folder of checkpoints.
//
//   checkpoint_7                     a checkpoint, number 7 of the series "checkpoint"
//   best                             a checkpoint that belongs to no series
//   .checkpoint_7.tmp-<16 digits>    being written, or being deleted; never read
//   .checkpoint_7.old-<16 digits>    set aside while a new checkpoint takes its name
//   .checkpoint.lock, .best.lock     held by the job that writes the series, or that checkpoint
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace accelerate::files {

// The series of automatic naming.
inline constexpr std::string_view kSeries = "checkpoint";

// checkpoint_<number>, the name that automatic naming gives.
std::string numbered_name(int64_t number);

struct SeriesName {
  std::string series;  // "checkpoint"
  int64_t number = 0;

  bool operator==(const SeriesName&) const = default;
};
// The parts of <series>_<number>; nothing for names that are not exactly what numbered_name() would
// write for that series: no sign, no leading zero.
std::optional<SeriesName> series_name(std::string_view name);

// Whether save_state() gives a file that name, the manifest included: model.safetensors,
// optimizer_1.bin, random_states_0.pkl and so on. Hooks of users write files of other names.
bool is_state_file(std::string_view name);

// What a rank holds of models that are in pieces.
std::string model_pieces_file(int rank);
bool is_model_pieces_file(std::string_view name);
// In such a file "0.1.fc.weight" is box 1, of those that the rank has, of "fc.weight" of model 0.
struct ModelPieceName {
  size_t model = 0;
  size_t box = 0;
  std::string tensor{};
};
std::string to_string(const ModelPieceName& piece);
std::optional<ModelPieceName> model_piece_name(std::string_view name);
// Takes "<number>." off the front of the name of a piece; false, with the name as it was, where it
// has no number there.
bool take_number(std::string_view& name, size_t& number);

// A hidden name beside a checkpoint.
enum class HiddenKind { kTemporary, kSetAside };
struct HiddenName {
  HiddenKind kind = HiddenKind::kTemporary;
  std::string checkpoint;  // whose it is
};
std::optional<HiddenName> hidden_name(std::string_view name);
// A new one, which differs from every other.
std::string make_hidden_name(HiddenKind kind, std::string_view checkpoint);

// The lock file of a checkpoint of that name; all of one series share it.
std::string lock_name(std::string_view checkpoint);

}  // namespace accelerate::files
