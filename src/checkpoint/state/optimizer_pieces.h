// The state of optimizers whose groups hold pieces of the user's parameters, in checkpoints.
//
// optimizer.bin keeps the groups, with the user's parameters by number, and no state. What each
// rank keeps is in its optimizer_pieces_<rank>.safetensors: "0.3.exp_avg" is that of parameter 3 of
// optimizer 0, and the manifest says which box of it; further boxes of it on the same rank are
// "0.3.exp_avg/1" and so on. "0.3.step" is a number, on each rank that has a piece of the
// parameter.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "accelerate/safetensors.h"
#include "accelerate/strategy.h"
#include "accelerate/torch_archive.h"
#include "checkpoint/state/snapshot.h"
#include "checkpoint/state/state_reader.h"

namespace accelerate::checkpoint {

// An optimizer, and what its groups hold of which parameters. References all of them.
struct LaidOutOptimizer {
  const torch::optim::Optimizer& optimizer;
  const std::vector<at::Tensor>& parameters;
  const OptimizerLayout& layout;

  // Of one of the parameters, whole.
  at::IntArrayRef shape(size_t parameter) const;
};

// What optimizer.bin holds; `state` is that of optimizer_state(), in which tensors are numbered as
// the groups hold them.
TorchValue groups_by_parameters(const TorchValue& state, const OptimizerLayout& layout);
// Adds what this rank keeps of `state`, that of optimizer `number`; shares its memory. Throws
// CheckpointError for a state that does not go by elements, UsageError for a layout that does not
// fit the groups.
void add_pieces(const TorchValue& state, size_t number, const LaidOutOptimizer& of,
                TensorsFile& file);

// A state that was saved, by the numbers of the user's parameters; whole or in pieces. Files stay
// open as long as it lives.
class SavedOptimizerState {
 public:
  // Of optimizer `number`. `archive` is its optimizer.bin. Throws CheckpointError for files that
  // are damaged.
  SavedOptimizerState(TorchValue archive, size_t number, const StateReader& reader);

  // The state as this optimizer has it. Throws CheckpointError if elements are missing or
  // parameters have another shape.
  TorchValue state_for(const LaidOutOptimizer& target, const std::string& where) const;

 private:
  struct Piece {
    TensorBox box;
    std::vector<int64_t> global_shape;
    at::Tensor tensor;
  };
  struct Field {
    TorchValue whole{};  // none where there are pieces
    std::vector<Piece> pieces{};
  };
  using Fields = std::map<std::string, Field>;

  // Throws CheckpointError if a parameter that has no state here may have some in a file that is
  // missing.
  void require_stateless(size_t parameter, const std::string& where) const;
  at::Tensor elements(size_t parameter, const std::string& name, const Field& field,
                      at::IntArrayRef shape, const TensorBox& box, const std::string& where) const;

  TorchValue archive_;
  std::map<size_t, Fields> states_;  // by parameter
  std::string absent_file_;          // the first, of a rank that has written pieces
  bool has_files_ = false;
  bool has_own_file_ = false;  // that of this rank, on as many ranks as saved it
};

std::string pieces_file(int rank);
// Whether a rank has written such a file.
bool has_pieces(const StateReader& reader);
// Of groups that hold the parameters as they are.
OptimizerLayout whole_layout(const torch::optim::Optimizer& optimizer);

}  // namespace accelerate::checkpoint
