// Tensors of a model that ranks hold in pieces, brought together.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "accelerate/communicator.h"
#include "checkpoint/model/model_state.h"

namespace accelerate::checkpoint {

// Which rank holds what of one model.
class PieceTable {
 public:
  // What a rank tells the others of its part.
  static std::string text_of(const ModelState& own);
  // From the texts of all ranks, by rank. Throws UsageError, the same on all ranks, unless they
  // name the same tensors of the same types and shapes, and the pieces make the whole. `where` is
  // what the user called.
  PieceTable(const std::vector<std::string>& texts, const char* where);

  bool empty() const { return tensors_.empty(); }

 private:
  friend class PieceExchange;
  struct Tensor {
    std::string type{};
    std::vector<int64_t> shape{};
    std::vector<std::vector<TensorBox>> boxes{};  // by rank
  };
  std::map<std::string, Tensor> tensors_;
};

// Gives whole tensors to some of the ranks, one after the other. References `own` and `table`.
class PieceExchange {
 public:
  // `order`: the names in which all ranks take part, the same on all of them. `keeps`: whether this
  // rank wants the tensors.
  PieceExchange(Communicator& ranks, const ModelState& own, const PieceTable& table,
                std::vector<std::string> order, bool keeps);

  // The next one of the order, on the CPU; undefined where this rank keeps none. Collective, but
  // for names that are not in pieces: these are returned as they are.
  at::Tensor take(const std::string& name);
  // Takes part in what is left of the order. To be called after an error too, lest the others wait.
  void finish();

 private:
  at::Tensor next();

  Communicator& ranks_;
  const ModelState& own_;
  const PieceTable& table_;
  std::vector<std::string> order_;  // of names in pieces
  size_t taken_ = 0;
  bool keeps_;
};

// The tensors of a model as a file will hold them: those in pieces have their whole shape and no
// memory to speak of.
ModelStateDict described_tensors(const ModelState& state);

}  // namespace accelerate::checkpoint
