#include "accelerate/operations.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "accelerate/errors.h"
#include "comm/groups/wire.h"

namespace accelerate {

std::string Reduction::name() const { return op_ ? comm::name_of(*op_) : "none"; }

std::optional<ReduceOp> Reduction::parse(std::string_view name) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax}) {
    if (comm::name_of(op) == name) return op;
  }
  if (name == "none") return std::nullopt;
  throw UsageError({.what = "unknown reduction `" + std::string(name) + '`',
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

}  // namespace detail
}  // namespace accelerate
