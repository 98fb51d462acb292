#include "accelerate/operations.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "accelerate/errors.h"

namespace accelerate {

std::string Reduction::name() const {
  if (!op_) return "none";
  switch (*op_) {
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

std::optional<ReduceOp> Reduction::parse(std::string_view name) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax}) {
    if (Reduction(op).name() == name) return op;
  }
  if (name == "none") return std::nullopt;
  throw UsageError({.what = "there is no reduction `" + std::string(name) + '`',
                    .where = "reduce",
                    .hint = "use sum, mean, max, min or none"});
}

namespace detail {

int64_t count_real_rows(int64_t rows, const BatchInfo& batch) {
  if (batch.size <= 0 || batch.valid >= batch.size || rows % batch.size != 0) return rows;
  return rows / batch.size * std::max<int64_t>(batch.valid, 0);
}

at::Tensor leading_rows(const at::Tensor& tensor, int64_t rows) {
  return rows == tensor.size(0) ? tensor : tensor.narrow(0, 0, rows);
}

at::Tensor half_to_float(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::ScalarType dtype = tensor.scalar_type();
  return dtype == at::kHalf || dtype == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

}  // namespace detail
}  // namespace accelerate
