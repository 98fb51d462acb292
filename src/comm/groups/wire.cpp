#include "comm/groups/wire.h"

#include <vector>

namespace accelerate::comm {

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMean:
      return "mean";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
  }
  return "?";
}

bool can_be_reduced(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kChar:
    case at::kByte:
    case at::kBool:
    case at::kInt:
    case at::kLong:
      return true;
    default:
      return false;
  }
}

at::Tensor to_wire(const at::Tensor& tensor) {
  const at::Tensor row = tensor.detach().resolve_conj().resolve_neg().contiguous().view({-1});
  return can_be_reduced(row.scalar_type()) ? row : row.view(at::kByte);
}

at::Tensor from_wire(const at::Tensor& row, const at::Tensor& sample) {
  return row.view(sample.scalar_type()).view(sample.sizes());
}

at::Tensor from_wire(const at::Tensor& row, const at::Tensor& sample, int64_t copies) {
  std::vector<int64_t> shape{copies};
  shape.insert(shape.end(), sample.sizes().begin(), sample.sizes().end());
  return row.view(sample.scalar_type()).view(shape);
}

}  // namespace accelerate::comm
