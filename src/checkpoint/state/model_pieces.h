// Models of which each rank holds a part, in checkpoints.
//
// Such a model has no file of its own: what each rank keeps is in its
// model_pieces_<rank>.safetensors, by the names of files::ModelPieceName, and the manifest says
// which box of the whole each is. Tensors that are not in pieces are there too, whole, in the file
// of the rank that writes what all have in common.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accelerate/checkpoint.h"
#include "accelerate/safetensors.h"
#include "checkpoint/model/load_source.h"
#include "checkpoint/model/model_state.h"
#include "checkpoint/state/snapshot.h"
#include "checkpoint/state/state_reader.h"

namespace accelerate::checkpoint {

// Adds what this rank holds of model `number`; shares its memory. Throws UsageError for a layout
// that does not fit the weights.
void add_model_pieces(const ModelToSave& model, size_t number, bool writes_whole_tensors,
                      TensorsFile& file);

// A tensor that was saved, whole or in pieces.
struct SavedTensor {
  struct Piece {
    TensorBox box{};
    std::function<at::Tensor()> read{};  // on the CPU
  };
  std::vector<int64_t> shape{};  // of the whole
  at::ScalarType dtype = at::kFloat;
  std::vector<Piece> pieces{};
};
using SavedTensors = std::map<std::string, SavedTensor>;

// The files of all ranks that are here, open as long as something reads from them.
class ModelPieceFiles {
 public:
  // Throws CheckpointError that names the file if one is damaged or is not what the manifest says.
  explicit ModelPieceFiles(const StateReader& reader);

  // Of the first rank whose file is not here; empty if all are, or none.
  const std::string& absent_file() const { return absent_file_; }
  // The tensors of one model by name, other names included; pieces of each do not overlap.
  const SavedTensors& model(size_t number) const;

 private:
  void add_file(const StateReader& reader, const std::string& name);
  void add_piece(SavedTensor tensor, size_t model, const std::string& name,
                 const std::string& where);

  std::string absent_file_;
  std::map<size_t, SavedTensors> models_;
};

// All tensors of a file that holds a model.
SavedTensors whole_tensors(std::shared_ptr<const TensorSource> source);

// Saved tensors as a source of just what this rank holds of a model.
class CutSource final : public TensorSource {
 public:
  // `absent_file`: where pieces may be that are missing, or empty.
  CutSource(const SavedTensors& saved, const ModelState& target, const std::string& absent_file);

  // Whole shapes that differ, and pieces that this rank needs and nobody has. Empty: none.
  const std::string& problems() const { return problems_; }

  const std::vector<StoredTensor>& tensors() const override { return stored_; }
  const std::map<std::string, std::string>& aliases() const override { return no_aliases_; }
  at::Tensor tensor(const std::string& name) const override;
  void read(const std::string& name, std::span<std::byte> bytes) const override;

 private:
  struct Cut {
    const SavedTensor* saved = nullptr;  // null: this rank needs no element of it
    std::vector<TensorBox> boxes{};
    std::vector<int64_t> shape{};  // of what this rank holds
    at::ScalarType dtype = at::kFloat;
  };
  void add_problem(const std::string& what);
  // Fills a vector with the elements of the boxes.
  void fill(at::Tensor elements, const Cut& cut) const;

  SavedTensors saved_;
  std::map<std::string, Cut> cuts_;
  std::vector<StoredTensor> stored_;
  std::map<std::string, std::string> no_aliases_;
  std::string problems_;
};

}  // namespace accelerate::checkpoint
