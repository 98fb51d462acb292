#include "files/pieces/tensor_pieces.h"

#include <algorithm>

namespace accelerate::files {
namespace {

uint64_t elements_of(const std::vector<uint64_t>& shape, size_t from = 0) {
  uint64_t elements = 1;
  for (size_t i = from; i < shape.size(); ++i) elements *= shape[i];
  return elements;
}

bool is_inside(const TensorPiece& piece, const std::vector<uint64_t>& whole) {
  if (piece.shape.size() != whole.size() || piece.start.size() != whole.size()) return false;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (piece.start[i] > whole[i] || piece.shape[i] > whole[i] - piece.start[i]) return false;
  }
  return true;
}

bool overlap(const TensorPiece& a, const TensorPiece& b) {
  for (size_t i = 0; i < a.shape.size(); ++i) {
    if (a.start[i] >= b.start[i] + b.shape[i] || b.start[i] >= a.start[i] + a.shape[i]) {
      return false;
    }
  }
  return true;
}

using Pieces = std::vector<const TensorPiece*>;

// Those with elements.
Pieces filled_pieces(const PiecedTensor& tensor) {
  Pieces pieces;
  for (const TensorPiece& piece : tensor.pieces) {
    if (elements_of(piece.shape) > 0) pieces.push_back(&piece);
  }
  return pieces;
}

bool any_overlap(Pieces pieces) {
  if (pieces.size() < 2) return false;
  if (pieces.front()->shape.empty()) return true;
  const auto start = [](const TensorPiece* piece) { return piece->start[0]; };
  std::ranges::sort(pieces, {}, start);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint64_t end = pieces[i]->start[0] + pieces[i]->shape[0];
    for (size_t j = i + 1; j < pieces.size() && start(pieces[j]) < end; ++j) {
      if (overlap(*pieces[i], *pieces[j])) return true;
    }
  }
  return false;
}

// Goes through the tensor dimension by dimension; inside, the pieces are those that hold a part of
// what the indices so far lead to.
class Runs {
 public:
  Runs(const PiecedTensor& tensor, const std::function<void(size_t, uint64_t, uint64_t)>& run)
      : shape_(tensor.pieces_shape()),
        bits_(dtype_bits(tensor.stored_dtype())),
        run_(run),
        index_(shape_.size()) {}

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
                      shape_.begin() + dimension);
  }

  // `count` blocks of all that comes in this dimension and after it.
  void emit(const TensorPiece& piece, size_t dimension, uint64_t count) {
    if (!piece.strides.empty()) return emit_strided(piece, dimension, count);
    uint64_t element = 0;
    for (size_t i = 0; i < piece.shape.size(); ++i) {
      element = element * piece.shape[i] + (i < dimension ? index_[i] - piece.start[i] : 0);
    }
    emit_elements(piece, element, count * elements_of(shape_, dimension));
  }

  void emit_elements(const TensorPiece& piece, uint64_t element, uint64_t elements) {
    // Types of less than a byte are never in pieces: their bytes are whole ones.
    run_(piece.file, piece.offset + element * bits_ / 8, elements * bits_ / 8);
  }

  void emit_strided(const TensorPiece& piece, size_t dimension, uint64_t count) {
    uint64_t element = 0;
    for (size_t i = 0; i < dimension; ++i) {
      element += (index_[i] - piece.start[i]) * piece.strides[i];
    }
    if (dimension == 0) return emit_rows(piece, element, 0);
    for (uint64_t i = 0; i < count; ++i) {
      emit_rows(piece, element + i * piece.strides[dimension - 1], dimension);
    }
  }

  // All from this dimension on, of which the block has everything.
  void emit_rows(const TensorPiece& piece, uint64_t element, size_t dimension) {
    uint64_t row = 1;
    size_t first = shape_.size();  // from here on the elements follow one another
    while (first > dimension && (piece.shape[first - 1] == 1 || piece.strides[first - 1] == row)) {
      row *= piece.shape[--first];
    }
    if (first == dimension) return emit_elements(piece, element, row);
    for (uint64_t i = 0; i < piece.shape[dimension]; ++i) {
      emit_rows(piece, element + i * piece.strides[dimension], dimension + 1);
    }
  }

  const std::vector<uint64_t> shape_;
  const uint64_t bits_;
  const std::function<void(size_t, uint64_t, uint64_t)>& run_;
  std::vector<uint64_t> index_;
};

}  // namespace

std::vector<uint64_t> PiecedTensor::pieces_shape() const {
  return is_flat ? std::vector<uint64_t>{elements_of(shape)} : shape;
}

std::string tiling_problem(const PiecedTensor& tensor) {
  const std::vector<uint64_t> whole = tensor.pieces_shape();
  uint64_t elements = 0;
  for (const TensorPiece& piece : tensor.pieces) {
    if (!is_inside(piece, whole)) return "a piece does not lie in it";
    elements += elements_of(piece.shape);
  }
  if (tensor.pieces.size() == 1 && elements == elements_of(whole)) return "";
  if (dtype_bits(tensor.stored_dtype()) < 8)
    return "elements of less than a byte cannot be split into pieces";
  if (any_overlap(filled_pieces(tensor))) return "two pieces of it overlap";
  if (elements != elements_of(whole)) {
    return "its pieces have " + std::to_string(elements) + " elements of " +
           std::to_string(elements_of(whole));
  }
  return "";
}

void for_each_run(const PiecedTensor& tensor,
                  const std::function<void(size_t, uint64_t, uint64_t)>& run) {
  if (elements_of(tensor.shape) == 0) return;
  Runs(tensor, run).go(filled_pieces(tensor), 0);
}

}  // namespace accelerate::files
