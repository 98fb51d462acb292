#include "files/merge/tensor_pieces.h"

#include <algorithm>

namespace accelerate::files {
namespace {

uint64_t elements_of(const std::vector<uint64_t>& shape, size_t from = 0) {
  uint64_t elements = 1;
  for (size_t i = from; i < shape.size(); ++i) elements *= shape[i];
  return elements;
}

bool overlap(const TensorPiece& a, const TensorPiece& b) {
  if (elements_of(a.shape) == 0 || elements_of(b.shape) == 0) return false;
  for (size_t i = 0; i < a.shape.size(); ++i) {
    if (a.start[i] >= b.start[i] + b.shape[i] || b.start[i] >= a.start[i] + a.shape[i]) {
      return false;
    }
  }
  return true;
}

using Pieces = std::vector<const TensorPiece*>;

// Goes through the tensor dimension by dimension; inside, the pieces are those that hold a part of
// what the indices so far lead to.
class Runs {
 public:
  Runs(const MergeTensor& tensor, const std::function<void(size_t, uint64_t, uint64_t)>& run)
      : tensor_(tensor), run_(run), index_(tensor.shape.size()) {}

  void go(const Pieces& pieces, size_t dimension) {
    if (spans_rest(pieces, dimension)) return emit(*pieces.front(), dimension, 1);
    std::vector<uint64_t> bounds;
    for (const TensorPiece* piece : pieces) {
      bounds.push_back(piece->start[dimension]);
      bounds.push_back(piece->start[dimension] + piece->shape[dimension]);
    }
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    // Between two bounds the same pieces count.
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      Pieces inner;
      for (const TensorPiece* piece : pieces) {
        if (piece->start[dimension] <= bounds[i] &&
            bounds[i] < piece->start[dimension] + piece->shape[dimension]) {
          inner.push_back(piece);
        }
      }
      index_[dimension] = bounds[i];
      if (spans_rest(inner, dimension + 1)) {
        emit(*inner.front(), dimension + 1, bounds[i + 1] - bounds[i]);
        continue;
      }
      for (; index_[dimension] < bounds[i + 1]; ++index_[dimension]) go(inner, dimension + 1);
    }
  }

 private:
  // Whether one piece holds everything in this dimension and those after it.
  bool spans_rest(const Pieces& pieces, size_t dimension) const {
    return pieces.size() == 1 &&
           std::equal(pieces.front()->shape.begin() + dimension, pieces.front()->shape.end(),
                      tensor_.shape.begin() + dimension);
  }

  // `count` blocks of all that comes in this dimension and after it.
  void emit(const TensorPiece& piece, size_t dimension, uint64_t count) {
    uint64_t element = 0;
    for (size_t i = 0; i < piece.shape.size(); ++i) {
      element = element * piece.shape[i] + (i < dimension ? index_[i] - piece.start[i] : 0);
    }
    const uint64_t elements = count * elements_of(tensor_.shape, dimension);
    // Types of less than a byte are never in pieces: their bytes are whole ones.
    const uint64_t bits = dtype_bits(tensor_.dtype);
    run_(piece.file, piece.offset + element * bits / 8, elements * bits / 8);
  }

  const MergeTensor& tensor_;
  const std::function<void(size_t, uint64_t, uint64_t)>& run_;
  std::vector<uint64_t> index_;
};

}  // namespace

std::string tiling_problem(const MergeTensor& tensor) {
  uint64_t elements = 0;
  for (const TensorPiece& piece : tensor.pieces) elements += elements_of(piece.shape);
  if (tensor.pieces.size() == 1 && elements == elements_of(tensor.shape)) return "";
  if (dtype_bits(tensor.dtype) < 8)
    return "elements of less than a byte cannot be split into pieces";
  for (size_t i = 0; i < tensor.pieces.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (overlap(tensor.pieces[i], tensor.pieces[j])) return "two pieces of it overlap";
    }
  }
  if (elements != elements_of(tensor.shape)) {
    return "its pieces have " + std::to_string(elements) + " elements of " +
           std::to_string(elements_of(tensor.shape));
  }
  return "";
}

void for_each_run(const MergeTensor& tensor,
                  const std::function<void(size_t, uint64_t, uint64_t)>& run) {
  if (elements_of(tensor.shape) == 0) return;
  Pieces pieces;
  for (const TensorPiece& piece : tensor.pieces) {
    if (elements_of(piece.shape) > 0) pieces.push_back(&piece);
  }
  Runs(tensor, run).go(pieces, 0);
}

}  // namespace accelerate::files
